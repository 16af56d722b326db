//! "Did you mean …?"

/// The candidate nearest to `word`, if it is near enough to be a slip.
pub(crate) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A longer word than any name is no slip, and the distance is quadratic.
    if word.len() > 64 {
        return None;
    }
    let allowed = (word.chars().count() / 4).clamp(1, 4);
    candidates
        .map(|c| (distance(word, c), c))
        .filter(|(d, c)| *d <= allowed || (word.len() >= 4 && c.contains(word)))
        .min()
        .map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let names = ["mtu", "cluster-subnets", "gateway-mode", "nodeport"];
        let near = |w| nearest(w, names.into_iter());
        assert_eq!(near("cluster-subents"), Some("cluster-subnets"));
        assert_eq!(near("mtv"), Some("mtu"));
        assert_eq!(near("node-port"), Some("nodeport"));
        assert_eq!(near("subnets"), Some("cluster-subnets"));
        assert_eq!(near("frobnicate"), None);
    }
}
