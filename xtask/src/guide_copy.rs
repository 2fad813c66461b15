//! How a guide reads in the documentation of the crate `taskharbor`: the same text with links that work there.
//!
//! A package has no file outside of its directory, so the crate has a copy of each guide. The house rules compile this
//! file, too: they say which copy is not what it should be.

/// The directory of the guides.
pub(crate) const GUIDES: &str = "docs/guides/";
/// The directory of their copies.
pub(crate) const COPIES: &str = "crates/taskharbor/src/guide/";

const REPOSITORY: &str = "https://github.com/taskharbor/taskharbor/blob/main/";
/// Where the code host has images as files, and not on a page.
const IMAGES: &str = "https://raw.githubusercontent.com/taskharbor/taskharbor/main/";

/// The path of the copy of a guide; `None` for any other file.
pub(crate) fn path(guide: &str) -> Option<String> {
    let name = guide.strip_prefix(GUIDES).filter(|name| name.ends_with(".md"))?;
    Some(format!("{COPIES}{name}"))
}

/// The text of the copy of the guide at this path.
pub(crate) fn text(guide: &str, text: &str) -> String {
    let mut copy = String::with_capacity(text.len() + 1_024);
    let mut paragraph = String::new();
    let mut in_block = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        let definition = definition(line).filter(|_| !in_block);
        if !is_fence && !in_block && definition.is_none() && !line.trim().is_empty() {
            paragraph.push_str(line);
            continue;
        }
        copy.push_str(&with_links(guide, &paragraph));
        paragraph.clear();
        in_block ^= is_fence;
        match definition {
            Some((label, target)) => {
                copy.push_str(&format!("{label}]: {}\n", moved(guide, target)));
            }
            None => copy.push_str(line),
        }
    }
    copy + &with_links(guide, &paragraph)
}

/// The parts of `[label]: target`.
fn definition(line: &str) -> Option<(&str, &str)> {
    line.starts_with('[').then(|| line.trim_end().split_once("]: "))?
}

/// The paragraph with every link `](target)` moved. Code between backticks stays, also across lines.
fn with_links(guide: &str, paragraph: &str) -> String {
    let parts = paragraph.split('`').enumerate().map(|(at, part)| {
        let mut links = part.split("](");
        let mut moved_part = links.next().unwrap_or_default().to_owned();
        for link in links {
            moved_part.push_str("](");
            match link.split_once(')') {
                Some((target, rest)) if at % 2 == 0 => {
                    moved_part.push_str(&format!("{}){rest}", moved(guide, target)));
                }
                _ => moved_part.push_str(link),
            }
        }
        moved_part
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The target of a link, as the documentation of the crate needs it: a guide is a module, and every other file is in
/// the repository.
fn moved(guide: &str, target: &str) -> String {
    let (file, fragment) = match target.find('#') {
        Some(at) => target.split_at(at),
        None => (target, ""),
    };
    if file.is_empty() || file.contains("://") {
        return target.to_owned();
    }
    let path = resolved(guide, file);
    let inside = format!("{path}/");
    if let Some(name) = inside.strip_prefix(GUIDES) {
        let name = name.trim_end_matches('/').trim_end_matches(".md");
        return format!("crate::guide::{}{fragment}", name.replace('/', "::").replace('-', "_"));
    }
    let host = if path.ends_with(".png") { IMAGES } else { REPOSITORY };
    format!("{host}{path}{fragment}")
}

/// A path relative to the root, from the file that names it.
fn resolved(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(line: &str) -> String {
        text("docs/guides/recipes/a-b.md", line)
    }

    #[test]
    fn a_link_to_a_guide_becomes_a_link_to_its_module() {
        assert_eq!(copied("[x](c-d.md#e) y"), "[x](crate::guide::recipes::c_d#e) y");
        assert_eq!(copied("[`x`](../e.md), [z](../recipes/)"), {
            "[`x`](crate::guide::e), [z](crate::guide::recipes)"
        });
        assert_eq!(copied("`a\nb` [x](c.md)\n\n[x](c.md)\n"), {
            "`a\nb` [x](crate::guide::recipes::c)\n\n[x](crate::guide::recipes::c)\n"
        });
    }

    #[test]
    fn a_link_to_another_file_leads_to_the_repository() {
        assert_eq!(copied("[x](../../SEMANTICS.md#a)"), {
            format!("[x]({REPOSITORY}docs/SEMANTICS.md#a)")
        });
        assert_eq!(copied("[x]: ../../image/a.png\n"), format!("[x]: {IMAGES}docs/image/a.png\n"));
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let fence = "`".repeat(3);
        for kept in [
            "[x](#y) [z](https://example.com/a.md)\n",
            "`[x](y.md)`\n",
            "`a\n[x](y.md)`\n",
            &format!("{fence}rust\n[x](y.md)\n{fence}\n"),
            "no link\n",
        ] {
            assert_eq!(copied(kept), kept);
        }
    }

    #[test]
    fn every_guide_has_a_place_for_its_copy() {
        assert_eq!(path("docs/guides/recipes/a.md").as_deref(), {
            Some("crates/taskharbor/src/guide/recipes/a.md")
        });
        assert_eq!(path("docs/SEMANTICS.md"), None);
    }
}
