//! Mistakes in attributes: each is refused with its message, and none hides another.

use quote::{ToTokens, quote};
use syn::{DeriveInput, Type, parse_quote};

use super::JobAttribute;

const MISSING: &str = "add #[job(type = \"…\")]: the name is stored with every job, so that \
                       renaming the struct strands nothing";
const KEYS: &str =
    "use type, queue, max_attempts, timeout, priority, retry, lane, input, output, crate";

#[track_caller]
fn accepted(item: &DeriveInput) -> JobAttribute {
    match JobAttribute::of(item) {
        Ok(attribute) => attribute,
        Err(error) => {
            panic!("{:?}", error.into_iter().map(|it| it.to_string()).collect::<Vec<_>>())
        }
    }
}

#[track_caller]
fn refused(item: &DeriveInput) -> Vec<String> {
    let error = JobAttribute::of(item).err().expect("an error");
    error.into_iter().map(|error| error.to_string()).collect()
}

/// The errors of a struct with these keys after a valid type.
#[track_caller]
fn refused_keys(keys: &str) -> Vec<String> {
    let keys: proc_macro2::TokenStream = keys.parse().unwrap();
    refused(&parse_quote!(
        #[job(type = "a", #keys)]
        struct A;
    ))
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

#[test]
fn keys_may_be_spread_over_attributes_among_those_of_others() {
    let attribute = accepted(&parse_quote! {
        /// A job.
        #[job(queue = "mail", priority = -3,)]
        #[serde(deny_unknown_fields)]
        #[job()]
        #[job]
        #[job(r#type = r"email:send")]
        struct SendEmail { #[serde(default)] to: String }
    });
    assert_eq!(attribute.job_type.value(), "email:send");
    assert_eq!(attribute.options.queue.map(|queue| queue.value()).as_deref(), Some("mail"));
    assert_eq!(attribute.options.priority, Some(-3));
    assert_eq!(attribute.options.max_attempts, None);
    assert_eq!(attribute.options.timeout_nanos, None);
}

#[test]
fn types_may_contain_commas_and_equals_signs() {
    let (input, output): (Type, Type) = (
        parse_quote!(HashMap<String, Vec<u8>>),
        parse_quote!(Box<dyn Iterator<Item = (u8, [u8; 2])>>),
    );
    let attribute = accepted(&parse_quote!(
        #[job(input = #input, output = #output, type = "a")]
        struct A;
    ));
    assert_eq!(text(&attribute.input), text(&input));
    assert_eq!(text(&attribute.output), text(&output));
}

#[test]
fn the_library_is_named_bare_or_in_quotes() {
    for (given, path) in [
        (quote!(crate), quote!(crate)),
        (quote!(jobs::harbor), quote!(jobs::harbor)),
        (quote!(::jobs), quote!(::jobs)),
        (quote!("crate::jobs"), quote!(crate::jobs)),
        (quote!("::jobs::harbor"), quote!(::jobs::harbor)),
    ] {
        let item = parse_quote!(
            #[job(type = "a", crate = #given)]
            struct A;
        );
        assert_eq!(text(&accepted(&item).library), text(&path));
    }
}

#[test]
fn a_type_is_asked_for() {
    assert_eq!(
        refused(&parse_quote!(
            struct A;
        )),
        [MISSING]
    );
    assert_eq!(
        refused(&parse_quote!(
            #[job]
            enum A {
                B,
            }
        )),
        [MISSING]
    );
    assert_eq!(
        refused(&parse_quote!(
            #[job(queue = "mail")]
            struct A;
        )),
        [MISSING]
    );
}

#[test]
fn an_unknown_key_is_answered_with_the_known_ones() {
    assert_eq!(refused_keys("retries = 3"), [format!("unknown key `retries`: {KEYS}")]);
    assert_eq!(refused_keys("retries"), [format!("unknown key `retries`: {KEYS}")]);
    assert_eq!(refused_keys("retried(3, 4)"), [format!("unknown key `retried`: {KEYS}")]);
}

#[test]
fn what_cannot_be_a_key_is_answered_with_the_known_ones() {
    let expected = [format!("expected a key: {KEYS}")];
    assert_eq!(refused_keys("\"mail\""), expected);
    assert_eq!(refused_keys(", queue = \"mail\""), expected);
}

#[test]
fn a_key_given_twice_is_refused_also_over_several_attributes() {
    let expected = ["`queue` is given twice: keep one of them"];
    assert_eq!(refused_keys("queue = \"b\", queue = \"b\""), expected);
    let apart = parse_quote!(
        #[job(queue = "b", type = "a")]
        #[job(queue = "c")]
        struct A;
    );
    assert_eq!(refused(&apart), expected);
}

#[test]
fn a_key_without_a_value_is_refused() {
    let expected = ["`queue` has no value: write queue = and then the value"];
    for keys in ["queue", "queue =", "queue(\"mail\")", "queue, timeout = \"1s\""] {
        assert_eq!(refused_keys(keys), expected, "{keys}");
    }
}

#[test]
fn keys_are_separated_by_commas() {
    let expected = ["expected a comma: each value ends with one, except the last"];
    assert_eq!(refused_keys("queue = \"mail\" priority = 3"), expected);
    assert_eq!(refused_keys("max_attempts = 5 + 1, priority = 3"), expected);
}

#[test]
fn keys_outside_parentheses_are_refused() {
    let form = "write #[job(type = \"…\")]: the keys go in parentheses";
    assert_eq!(
        refused(&parse_quote!(
            #[job = "a"]
            struct A;
        )),
        [form, MISSING]
    );
}

#[test]
fn a_bad_value_is_refused_under_the_name_of_its_key() {
    for (keys, expected) in [
        ("queue = \"\"", "`queue` is empty: give it at least one visible character"),
        ("max_attempts = \"5\"", "`max_attempts` takes a whole number, such as 5"),
        ("timeout = 30", "`timeout` takes a time in quotes, such as \"30s\""),
        ("priority = 40000", "`priority` is out of range: choose -32768 to 32767"),
        ("input = \"Vec<u8>\"", "`input` takes a type without quotes, such as Vec<u8>"),
        ("output = Vec<", "`output` takes a type without quotes, such as Vec<u8>"),
        ("crate = \"a b\"", "`crate` takes a path, such as my_crate::taskharbor"),
        ("crate = \"a(\"", "`crate` takes a path, such as my_crate::taskharbor"),
        ("lane = account", "`lane` takes the name of a field in quotes, such as \"account_id\""),
        ("lane = \"account\"", "`lane` names no field of `A`: it has none"),
        ("crate = 5", "`crate` takes a path, such as my_crate::taskharbor"),
    ] {
        assert_eq!(refused_keys(keys), [expected], "{keys}");
    }
    let blank = parse_quote!(
        #[job(type = " ")]
        struct A;
    );
    assert_eq!(refused(&blank), ["`type` is blank: give it at least one visible character"]);
}

#[test]
fn reading_goes_on_at_the_next_comma_or_the_next_key() {
    let no_value = "`queue` has no value: write queue = and then the value";
    let unknown = format!("unknown key `retries`: {KEYS}");
    for keys in ["retries, queue", "retries = HashMap<u8, u8>, queue =", "retries(3) = 3 queue = "]
    {
        assert_eq!(refused_keys(keys), [&unknown, no_value], "{keys}");
    }
    let wrong_value = "`max_attempts` takes a whole number, such as 5";
    let stray = format!("expected a key: {KEYS}");
    assert_eq!(refused_keys("max_attempts = \"5\", 7, queue ="), [wrong_value, &stray, no_value]);
}

#[test]
fn a_lane_is_a_field_of_a_struct() {
    let named = parse_quote!(
        #[job(type = "a", lane = "tenant")]
        struct A {
            r#type: u8,
            tenant_id: u8,
        }
    );
    assert_eq!(refused(&named), ["`lane` names no field of `A`: use type, tenant_id"]);
    let tuple = parse_quote!(
        #[job(type = "a", lane = "2")]
        struct A(u8, u8);
    );
    assert_eq!(refused(&tuple), ["`lane` names no field of `A`: use 0, 1"]);
    let other = parse_quote!(
        #[job(type = "a", lane = "tenant")]
        enum A {
            B { tenant: u8 },
        }
    );
    let expected = "`lane` names a field of a struct: implement `Job` by hand for others";
    assert_eq!(refused(&other), [expected]);
}

#[test]
fn a_union_is_refused() {
    let union = parse_quote!(#[job(type = "a")] union A { b: u8 });
    assert_eq!(refused(&union), ["a union cannot be a job: derive Job for a struct or an enum"]);
}

#[test]
fn an_attribute_inside_the_item_is_refused() {
    let expected = "#[job(…)] has no effect here: move it above the struct or enum";
    let item = parse_quote!(
        #[job(type = "a")]
        struct A {
            #[job(queue = "b")]
            b: u8,
        }
    );
    assert_eq!(refused(&item), [expected]);
    let item = parse_quote!(
        #[job(type = "a")]
        enum A {
            #[job]
            B(#[job] u8),
            C,
        }
    );
    assert_eq!(refused(&item), [expected; 2]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let item = parse_quote! {
        #[job(queue = "", retries = 3, priority = high, timeout = "0s")]
        #[job(max_attempts = 0, queue = "mail")]
        struct A;
    };
    assert_eq!(
        refused(&item),
        [
            "`queue` is empty: give it at least one visible character",
            &format!("unknown key `retries`: {KEYS}"),
            "`priority` takes a whole number, such as 3 or -3",
            "`timeout` is zero: leave it out for none, or choose 1ms or more",
            "`max_attempts` is zero: a job runs at least once, so choose 1 to 2147483647",
            "`queue` is given twice: keep one of them",
            MISSING,
        ]
    );
}
