//! The field of a job whose value names its lane.

use proc_macro2::Span;
use syn::{Data, DeriveInput, Fields, LitStr, Member, ext::IdentExt};

/// The field that `name` stands for, at the place of `name`: if its value cannot be shown, the
/// compiler points there.
///
/// # Errors
///
/// If the item has no such field.
pub(crate) fn field(name: &LitStr, item: &DeriveInput) -> syn::Result<Member> {
    let Data::Struct(data) = &item.data else {
        let text = "`lane` names a field of a struct: implement `Job` by hand for others";
        return Err(syn::Error::new(name.span(), text));
    };
    let found = members(&data.fields).into_iter().find(|member| shown(member) == name.value());
    found.map(|member| at(member, name)).ok_or_else(|| {
        let names: Vec<String> = members(&data.fields).iter().map(shown).collect();
        let text = format!("`lane` names no field of `{}`: {}", item.ident, advice(&names));
        syn::Error::new(name.span(), text)
    })
}

fn members(fields: &Fields) -> Vec<Member> {
    fields.members().collect()
}

/// As it is written in the attribute.
fn shown(member: &Member) -> String {
    match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

fn at(mut member: Member, name: &LitStr) -> Member {
    // Only the place: `self` beside it must mean the same wherever the name was written.
    let span = Span::call_site().located_at(name.span());
    match &mut member {
        Member::Named(field) => field.set_span(span),
        Member::Unnamed(index) => index.span = span,
    }
    member
}

fn advice(names: &[String]) -> String {
    match names {
        [] => "it has none".to_owned(),
        names => format!("use {}", names.join(", ")),
    }
}
