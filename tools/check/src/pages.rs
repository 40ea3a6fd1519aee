//! The rules about pages: links lead somewhere, files that are named exist, every page is in the book's summary.

use crate::rules::{Finding, Rule};

/// What can be asked about the tree while a page is looked through.
pub trait Tree {
    /// Whether there is a file or a folder at this path from the root.
    fn exists(&self, path: &str) -> bool;
    /// The folders at the root.
    fn has_top_folder(&self, name: &str) -> bool;
}

/// Looks through one page.
pub fn check_page(tree: &impl Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        let mut report = |what: String| {
            findings.push(Finding { rule: Rule::Docs, path: path.to_owned(), line: number + 1, what });
        };
        for link in links(line).filter(|link| is_local(link)) {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !tree.exists(&resolve(path, file)) {
                report(format!("a link to {link}, which does not exist"));
            }
        }
        for name in named_files(line).filter(|name| tree.has_top_folder(name.split('/').next().unwrap_or_default())) {
            if !tree.exists(name.trim_end_matches('/')) {
                report(format!("names {name}, which does not exist"));
            }
        }
    }
    findings
}

/// Whether the summary of the book has all of its pages.
pub fn check_summary(summary_path: &str, summary: &str, pages: &[&str]) -> Vec<Finding> {
    let linked: Vec<String> = summary.lines().flat_map(links).map(|link| resolve(summary_path, link)).collect();
    let missing = pages.iter().filter(|page| **page != summary_path && !linked.iter().any(|link| link == *page));
    let finding = |page: &&str| Finding {
        rule: Rule::Docs,
        path: summary_path.to_owned(),
        line: 0,
        what: format!("{page} is not in the summary"),
    };
    missing.map(finding).collect()
}

/// The targets of the links of a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, open)| line[at + open.len()..].split(')').next())
}

fn is_local(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:")
}

/// What stands in backticks and looks like a path in this tree: has a slash, and nothing that paths here do not have.
fn named_files(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    quoted.filter(|name| name.contains('/') && !name.starts_with('/')).filter(plain)
}

/// A relative path seen from the page it stands in.
pub fn resolve(page: &str, link: &str) -> String {
    let mut folders: Vec<&str> = page.split('/').collect();
    folders.pop();
    for step in link.split('/') {
        match step {
            "." | "" => {}
            ".." => {
                folders.pop();
            }
            step => folders.push(step),
        }
    }
    folders.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small;

    impl Tree for Small {
        fn exists(&self, path: &str) -> bool {
            ["docs/src/a.md", "client/src/put.rs", "client/src", "README.md"].contains(&path)
        }

        fn has_top_folder(&self, name: &str) -> bool {
            ["docs", "client"].contains(&name)
        }
    }

    fn lines(text: &str) -> Vec<usize> {
        check_page(&Small, "docs/src/b.md", text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        assert_eq!(lines("[a](a.md) [r](../../README.md#x) [s](#here) [t](https://c.d/e)\n[c](c.md)"), [2]);
    }

    #[test]
    fn a_file_that_is_named_and_does_not_exist_is_found() {
        assert_eq!(lines("`client/src/put.rs` `client/src/` `a/b` `x / y` `/dev/shm`\n`client/src/set.rs`"), [2]);
    }

    #[test]
    fn code_blocks_are_passed_over() {
        assert_eq!(lines("```\n[c](c.md) `client/x`\n```\n`client/x`"), [4]);
    }

    #[test]
    fn a_page_outside_the_summary_is_found() {
        let summary = "- [A](a.md)\n";
        let found = check_summary("docs/src/SUMMARY.md", summary, &["docs/src/SUMMARY.md", "docs/src/a.md"]);
        assert_eq!(found, []);
        assert_eq!(check_summary("docs/src/SUMMARY.md", summary, &["docs/src/b.md"]).len(), 1);
    }
}
