//! `#[main]`: an `async fn` becomes one that runs on a runtime of its own.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

/// The function without its `async`, and its body on the library's runtime.
///
/// # Errors
///
/// If it is not an `async fn`.
pub(crate) fn expand(item: TokenStream) -> syn::Result<TokenStream> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let is_async_fn = |pair: &[TokenTree]| match pair {
        [TokenTree::Ident(first), TokenTree::Ident(second)] => first == "async" && second == "fn",
        _ => false,
    };
    let at = tokens.windows(2).position(is_async_fn);
    match (at, tokens.pop()) {
        (Some(at), Some(TokenTree::Group(body))) if body.delimiter() == Delimiter::Brace => {
            tokens.remove(at);
            let mut run = Group::new(Delimiter::Brace, quote!(::taskharbor::block_on(async #body)));
            run.set_span(body.span());
            tokens.push(run.into());
            Ok(tokens.into_iter().collect())
        }
        (_, last) => {
            let text =
                "put #[taskharbor::main] in front of an `async fn`, as in `async fn main() {}`";
            let first = tokens.into_iter().next().or(last);
            Err(syn::Error::new_spanned(first, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_runs_on_the_runtime() {
        let item = quote! {
            #[allow(unused)]
            pub async fn main() -> Result<(), Box<dyn Error>> { start().await?; Ok(()) }
        };
        let expected = quote! {
            #[allow(unused)]
            pub fn main() -> Result<(), Box<dyn Error>> {
                ::taskharbor::block_on(async { start().await?; Ok(()) })
            }
        };
        assert_eq!(expand(item).unwrap().to_string(), expected.to_string());
    }

    #[test]
    fn what_is_no_async_fn_is_refused() {
        for item in [
            quote!(
                fn main() {}
            ),
            quote!(
                struct Main;
            ),
            quote!(
                async fn main();
            ),
            quote!(),
        ] {
            let error = expand(item.clone()).unwrap_err();
            assert!(error.to_string().contains("in front of an `async fn`"), "{item}");
        }
    }
}
