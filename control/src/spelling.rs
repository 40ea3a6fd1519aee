//! Numbers and tables as people read them.

use comfy_table::{ContentArrangement, Table, presets};

/// Ascending numbers with neighbours drawn together: "0-3, 8".
pub fn ranges(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let show = |(first, last): &(u32, u32)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Ascending ranks with the word: "rank 3", "ranks 0-2, 5".
pub fn ranks(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, ranges(ranks))
}

/// A table without lines.
pub fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Its text, with nothing at the ends of lines.
pub fn trimmed(table: &Table) -> String {
    table.lines().map(|line| format!(" {}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_numbers_are_drawn_together() {
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!((ranks(&[4]), ranks(&[4, 5])), ("rank 4".to_owned(), "ranks 4-5".to_owned()));
    }
}
