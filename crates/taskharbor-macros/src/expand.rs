//! Generates the `impl` from the parsed attributes.
//!
//! Every path is absolute, so that nothing the user's module defines can get in between.

use proc_macro2::{Literal, TokenStream};
use quote::{quote, quote_spanned};
use syn::{DeriveInput, Path, spanned::Spanned};

use crate::attribute::{JobAttribute, Options};

/// The implementation of `Job` for `item`.
///
/// # Errors
///
/// One error that combines everything that is wrong with the item and its attributes.
pub(crate) fn expand(item: &DeriveInput) -> syn::Result<TokenStream> {
    let attribute = JobAttribute::of(item)?;
    let JobAttribute { job_type, input, output, library, options, retry, lane } = attribute;
    let options = options_fn(&library, &options);
    let retry = retry.map(|policy| {
        quote! {
            fn retry_policy() -> ::core::option::Option<::std::boxed::Box<dyn #library::RetryPolicy>> {
                ::core::option::Option::Some(::std::boxed::Box::new(#policy))
            }
        }
    });
    let lane = lane.map(|field| {
        // At the place of the field's name, so that the compiler points there if it cannot be shown.
        let span = field.span();
        let text = quote_spanned!(span=> ::std::string::ToString::to_string(&self.#field));
        quote! {
            fn lane(&self) -> ::core::option::Option<::std::string::String> {
                ::core::option::Option::Some(#text)
            }
        }
    });
    let ident = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #library::Job for #ident #type_generics #where_clause {
            const TYPE: &'static str = #job_type;
            type Input = #input;
            type Output = #output;
            #options
            #retry
            #lane
        }
    })
}

/// Nothing if no option is given: the trait has a default for that.
fn options_fn(library: &Path, options: &Options) -> Option<TokenStream> {
    let Options { queue, max_attempts, timeout_nanos, priority } = options;
    // As a person would write them: they are checked, so a suffix would say nothing.
    let max_attempts = max_attempts.map(Literal::u32_unsuffixed);
    let priority = priority.map(Literal::i16_unsuffixed);
    let calls = [
        queue.as_ref().map(|it| quote!(.queue(#it))),
        max_attempts.map(|it| quote!(.max_attempts(#it))),
        timeout_nanos.map(|it| quote!(.timeout(::core::time::Duration::from_nanos(#it)))),
        priority.map(|it| quote!(.priority(#it))),
    ];
    let calls: Vec<TokenStream> = calls.into_iter().flatten().collect();
    (!calls.is_empty()).then(|| {
        quote! {
            fn options() -> #library::Options {
                #library::Options::new() #(#calls)*
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[track_caller]
    fn assert_expands(item: &DeriveInput, expected: &TokenStream) {
        assert_eq!(expand(item).unwrap().to_string(), expected.to_string());
    }

    #[test]
    fn the_full_form_sets_everything() {
        let item = parse_quote! {
            #[job(type = "email:send", queue = "mail", max_attempts = 5, input = Vec<u8>)]
            #[job(output = Thumb, timeout = "30s", priority = 3)]
            struct SendEmail { to: String }
        };
        let expected = quote! {
            #[automatically_derived]
            impl ::taskharbor::Job for SendEmail {
                const TYPE: &'static str = "email:send";
                type Input = Vec<u8>;
                type Output = Thumb;
                fn options() -> ::taskharbor::Options {
                    ::taskharbor::Options::new()
                        .queue("mail")
                        .max_attempts(5)
                        .timeout(::core::time::Duration::from_nanos(30000000000u64))
                        .priority(3)
                }
            }
        };
        assert_expands(&item, &expected);
    }

    #[test]
    fn a_retry_policy_is_any_expression() {
        let item = parse_quote! {
            #[job(type = "tick", retry = Exponential::new().base(of(1, 2)), output = u8)]
            struct Tick;
        };
        let expected = quote! {
            #[automatically_derived]
            impl ::taskharbor::Job for Tick {
                const TYPE: &'static str = "tick";
                type Input = ();
                type Output = u8;
                fn retry_policy() -> ::core::option::Option<::std::boxed::Box<dyn ::taskharbor::RetryPolicy>> {
                    ::core::option::Option::Some(::std::boxed::Box::new(Exponential::new().base(of(1, 2))))
                }
            }
        };
        assert_expands(&item, &expected);
    }

    #[test]
    fn the_minimal_form_leaves_the_options_to_the_trait() {
        let expected = quote! {
            #[automatically_derived]
            impl ::taskharbor::Job for Tick {
                const TYPE: &'static str = "tick";
                type Input = ();
                type Output = ();
            }
        };
        for item in [
            parse_quote!(
                #[job(type = "tick")]
                struct Tick;
            ),
            parse_quote!(
                #[job(type = "tick")]
                struct Tick(u8);
            ),
            parse_quote!(
                #[job(type = "tick")]
                struct Tick {
                    at: u8,
                }
            ),
            parse_quote!(
                #[job(type = "tick")]
                enum Tick {
                    Once,
                    Often(u8),
                }
            ),
        ] {
            assert_expands(&item, &expected);
        }
    }

    #[test]
    fn a_lane_is_the_value_of_a_field() {
        let expected = |member: TokenStream| {
            quote! {
                #[automatically_derived]
                impl ::taskharbor::Job for Send {
                    const TYPE: &'static str = "send";
                    type Input = ();
                    type Output = ();
                    fn lane(&self) -> ::core::option::Option<::std::string::String> {
                        ::core::option::Option::Some(
                            ::std::string::ToString::to_string(&self.#member)
                        )
                    }
                }
            }
        };
        let named = parse_quote! {
            #[job(type = "send", lane = "account_id")]
            struct Send { account_id: u64 }
        };
        assert_expands(&named, &expected(quote!(account_id)));
        let tuple = parse_quote! {
            #[job(type = "send", lane = "1")]
            struct Send(u8, String);
        };
        assert_expands(&tuple, &expected(quote!(1)));
    }

    #[test]
    fn generics_and_where_clauses_are_carried_over() {
        let item = parse_quote! {
            #[job(type = "wrap", output = T)]
            struct Wrap<T: Data = (), const N: usize = 1>(T) where [T; N]: Data;
        };
        let expected = quote! {
            #[automatically_derived]
            impl<T: Data, const N: usize> ::taskharbor::Job for Wrap<T, N> where [T; N]: Data {
                const TYPE: &'static str = "wrap";
                type Input = ();
                type Output = T;
            }
        };
        assert_expands(&item, &expected);
    }

    #[test]
    fn another_path_to_the_library_replaces_the_usual_one() {
        let item = parse_quote! {
            #[job(type = "tick", crate = "crate::harbor", priority = -3)]
            struct Tick;
        };
        let low = Literal::i16_unsuffixed(-3);
        let expected = quote! {
            #[automatically_derived]
            impl crate::harbor::Job for Tick {
                const TYPE: &'static str = "tick";
                type Input = ();
                type Output = ();
                fn options() -> crate::harbor::Options {
                    crate::harbor::Options::new().priority(#low)
                }
            }
        };
        assert_expands(&item, &expected);
    }

    #[test]
    fn an_item_that_is_refused_expands_to_nothing() {
        assert!(
            expand(&parse_quote!(
                struct Tick;
            ))
            .is_err()
        );
    }
}
