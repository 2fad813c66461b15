//! `#[job(…)]`, read into a [`JobAttribute`] in which everything is valid.
//!
//! One mistake does not hide the next: after an error, reading goes on at the next key, and all
//! errors are returned as one. So the keys are read by hand rather than by what `syn` offers for
//! attributes, which stops at the first error.

use std::iter::once;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{
    Attribute, Data, DeriveInput, Field, LitStr, Member, Meta, Path, Token, Type, ext::IdentExt,
    parse::ParseStream, parse_quote,
};

use crate::{lane, value};

/// What the attributes of one struct or enum say.
pub(crate) struct JobAttribute {
    pub(crate) job_type: LitStr,
    pub(crate) input: Type,
    pub(crate) output: Type,
    /// Where the library is.
    pub(crate) library: Path,
    pub(crate) options: Options,
    /// An expression that makes the retry policy.
    pub(crate) retry: Option<TokenStream>,
    /// The field whose value names the lane.
    pub(crate) lane: Option<Member>,
}

/// What the job asks for wherever it is enqueued, unless told otherwise there.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) queue: Option<LitStr>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) timeout_nanos: Option<u64>,
    pub(crate) priority: Option<i16>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Type,
    Queue,
    MaxAttempts,
    Timeout,
    Priority,
    Retry,
    Lane,
    Input,
    Output,
    Crate,
}

impl Key {
    const ALL: [(&str, Self); 10] = [
        ("type", Self::Type),
        ("queue", Self::Queue),
        ("max_attempts", Self::MaxAttempts),
        ("timeout", Self::Timeout),
        ("priority", Self::Priority),
        ("retry", Self::Retry),
        ("lane", Self::Lane),
        ("input", Self::Input),
        ("output", Self::Output),
        ("crate", Self::Crate),
    ];

    fn named(name: &Ident) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| name == known).map(|(_, key)| key)
    }

    /// Every key, as errors list them.
    fn list() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }
}

/// What has been read so far, and all that was wrong with it.
#[derive(Default)]
struct Draft {
    given: Vec<Key>,
    job_type: Option<LitStr>,
    input: Option<Type>,
    output: Option<Type>,
    library: Option<Path>,
    options: Options,
    retry: Option<TokenStream>,
    lane: Option<LitStr>,
    error: Option<syn::Error>,
}

impl JobAttribute {
    /// Reads the attributes of `item`.
    ///
    /// # Errors
    ///
    /// One error that combines everything that is wrong.
    pub(crate) fn of(item: &DeriveInput) -> syn::Result<Self> {
        let mut draft = Draft::default();
        draft.refuse_union(&item.data);
        for attribute in job_attributes(&item.attrs) {
            draft.read(attribute);
        }
        draft.refuse_misplaced(&item.data);
        draft.finish(item)
    }
}

impl Draft {
    fn refuse(&mut self, error: syn::Error) {
        match &mut self.error {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    fn refuse_union(&mut self, data: &Data) {
        if let Data::Union(data) = data {
            let text = "a union cannot be a job: derive Job for a struct or an enum";
            self.refuse(syn::Error::new(data.union_token.span, text));
        }
    }

    /// What is written inside the item would be passed over in silence.
    fn refuse_misplaced(&mut self, data: &Data) {
        for attribute in inner_attributes(data).into_iter().flat_map(job_attributes) {
            let text = "#[job(…)] has no effect here: move it above the struct or enum";
            self.refuse(syn::Error::new_spanned(attribute, text));
        }
    }

    fn read(&mut self, attribute: &Attribute) {
        let read = match &attribute.meta {
            // The missing type is all there is to say about it.
            Meta::Path(_) => Ok(()),
            Meta::List(list) => list.parse_args_with(|input: ParseStream<'_>| self.keys(input)),
            Meta::NameValue(_) => {
                let text = "write #[job(type = \"…\")]: the keys go in parentheses";
                Err(syn::Error::new_spanned(attribute, text))
            }
        };
        if let Err(error) = read {
            self.refuse(error);
        }
    }

    fn keys(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while !input.is_empty() {
            if let Err(error) = self.key(input).and_then(|()| comma(input)) {
                self.refuse(error);
                if comma(input).is_err() {
                    skip_to_key(input)?;
                }
            }
        }
        Ok(())
    }

    fn key(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let Ok(name) = input.call(Ident::parse_any).map(|name| name.unraw()) else {
            return Err(input.error(format!("expected a key: use {}", Key::list())));
        };
        let Some(key) = Key::named(&name) else {
            let text = format!("unknown key `{name}`: use {}", Key::list());
            return Err(syn::Error::new(name.span(), text));
        };
        if self.given.contains(&key) {
            let text = format!("`{name}` is given twice: keep one of them");
            self.refuse(syn::Error::new(name.span(), text));
        }
        self.given.push(key);
        if input.parse::<Token![=]>().is_err() || input.is_empty() {
            let text = format!("`{name}` has no value: write {name} = and then the value");
            return Err(syn::Error::new(name.span(), text));
        }
        self.value(key, &name, input)
    }

    fn value(&mut self, key: Key, name: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
        let options = &mut self.options;
        match key {
            Key::Type => self.job_type = Some(value::parse(name, input, value::name)?),
            Key::Queue => options.queue = Some(value::parse(name, input, value::name)?),
            Key::MaxAttempts => {
                options.max_attempts = Some(value::parse(name, input, value::max_attempts)?);
            }
            Key::Timeout => {
                options.timeout_nanos = Some(value::parse(name, input, value::timeout)?);
            }
            Key::Priority => options.priority = Some(value::parse(name, input, value::priority)?),
            Key::Retry => self.retry = Some(value::parse(name, input, value::expression)?),
            Key::Lane => self.lane = Some(value::parse(name, input, value::field)?),
            Key::Input => self.input = Some(value::parse(name, input, value::data_type)?),
            Key::Output => self.output = Some(value::parse(name, input, value::data_type)?),
            Key::Crate => self.library = Some(value::parse(name, input, value::path)?),
        }
        Ok(())
    }

    fn finish(mut self, item: &DeriveInput) -> syn::Result<JobAttribute> {
        let ident = &item.ident;
        let lane = match self.lane.take().map(|name| lane::field(&name, item)).transpose() {
            Ok(lane) => lane,
            Err(error) => {
                self.refuse(error);
                None
            }
        };
        // A type that was refused is not missing.
        if !self.given.contains(&Key::Type) {
            self.refuse(missing_type(ident));
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        Ok(JobAttribute {
            job_type: self.job_type.ok_or_else(|| missing_type(ident))?,
            input: self.input.unwrap_or_else(|| parse_quote!(())),
            output: self.output.unwrap_or_else(|| parse_quote!(())),
            library: self.library.unwrap_or_else(|| parse_quote!(::taskharbor)),
            options: self.options,
            retry: self.retry,
            lane,
        })
    }
}

fn missing_type(ident: &Ident) -> syn::Error {
    let text = "add #[job(type = \"…\")]: the name is stored with every job, so that renaming the \
                struct strands nothing";
    syn::Error::new(ident.span(), text)
}

/// The attributes of each variant and each field.
fn inner_attributes(data: &Data) -> Vec<&[Attribute]> {
    fn of_field(field: &Field) -> &[Attribute] {
        &field.attrs
    }
    match data {
        Data::Struct(data) => data.fields.iter().map(of_field).collect(),
        Data::Union(data) => data.fields.named.iter().map(of_field).collect(),
        Data::Enum(data) => {
            let variants = data.variants.iter();
            variants.flat_map(|it| once(&*it.attrs).chain(it.fields.iter().map(of_field))).collect()
        }
    }
}

fn job_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("job"))
}

fn comma(input: ParseStream<'_>) -> syn::Result<()> {
    if !input.is_empty() && input.parse::<Token![,]>().is_err() {
        return Err(input.error("expected a comma: each value ends with one, except the last"));
    }
    Ok(())
}

/// Passes over what was not understood, to a word with `=` behind it or to the end.
fn skip_to_key(input: ParseStream<'_>) -> syn::Result<()> {
    let at_key = || input.peek(Ident::peek_any) && input.peek2(Token![=]);
    while !input.is_empty() && !at_key() {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
