//! Names that look like the one that was not found.

/// Up to three of `names` that differ little from `wanted`, the nearest first.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let bound = 2 + wanted.chars().count() / 4;
    let mut near: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let distance =
                if !wanted.is_empty() && name.contains(wanted) { 1 } else { distance(wanted, name) };
            (distance <= bound).then_some((distance, name))
        })
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// Insertions, deletions and replacements from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first_and_far_ones_not_at_all() {
        let names = ["shop/web-1", "shop/web-12", "shop/db-1", "mon/prometheus-0"];
        assert_eq!(nearest("shop/web1", names.into_iter())[0], "shop/web-1");
        assert_eq!(nearest("prometheus", names.into_iter()), ["mon/prometheus-0"]);
        assert!(nearest("kube-system/coredns", names.into_iter()).is_empty());
    }
}
