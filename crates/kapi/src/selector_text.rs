//! Label selectors in their one-line form, as on command lines: `app=web,tier in (a, b),!legacy`.

use std::str::FromStr;

use crate::{LabelSelector, Operator, Requirement};

/// A selector text that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("label selector {selector:?}: {problem}; expected e.g. \"app=web,tier in (a, b),!legacy\"")]
pub struct ParseSelectorError {
    /// The whole text.
    pub selector: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FromStr for LabelSelector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |problem: String| ParseSelectorError { selector: text.to_owned(), problem };
        let mut selector = LabelSelector::default();
        for term in terms(text).map_err(bad)? {
            selector.match_expressions.push(requirement(term).map_err(bad)?);
        }
        Ok(selector)
    }
}

/// Splits at commas outside parentheses.
fn terms(text: &str) -> Result<Vec<&str>, String> {
    let (mut terms, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if inside => return Err("nested parentheses".into()),
            '(' => inside = true,
            ')' if !inside => return Err("a closing parenthesis without an opening one".into()),
            ')' => inside = false,
            ',' if !inside => {
                terms.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("a parenthesis is not closed".into());
    }
    terms.push(text[start..].trim());
    if terms == [""] {
        terms.clear();
    }
    Ok(terms)
}

fn requirement(term: &str) -> Result<Requirement, String> {
    let of = |key: &str, operator: Operator, values: Vec<&str>| {
        let key = key.trim();
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)) {
            return Err(format!("{key:?} is not a label key"));
        }
        let values: Vec<String> = values.into_iter().map(|value| value.trim().to_owned()).collect();
        match values
            .iter()
            .find(|value| !value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)))
        {
            Some(value) => Err(format!("{value:?} is not a label value")),
            None => Ok(Requirement { key: key.to_owned(), operator, values }),
        }
    };
    if let Some(open) = term.find('(') {
        let list = term[open + 1..].trim_end().strip_suffix(')').ok_or("text after a closing parenthesis")?;
        let values: Vec<&str> = list.split(',').collect();
        let head = term[..open].trim();
        return match head.rsplit_once(char::is_whitespace) {
            Some((key, "in")) => of(key, Operator::In, values),
            Some((key, "notin")) => of(key, Operator::NotIn, values),
            _ => Err(format!("{term:?} has neither \"in\" nor \"notin\" before the list")),
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return of(key, Operator::NotIn, vec![value]);
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return of(key, Operator::In, vec![value]);
    }
    match term.strip_prefix('!') {
        Some(key) => of(key, Operator::DoesNotExist, Vec::new()),
        None => of(term, Operator::Exists, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_form_selects_as_the_api_does() {
        let labels =
            BTreeMap::from([("os".to_owned(), "windows".to_owned()), ("a/b".to_owned(), String::new())]);
        for (text, expected) in [
            ("", true),
            ("os=windows", true),
            ("os == windows", true),
            ("os!=windows", false),
            ("os in (linux, windows),a/b", true),
            ("os notin (linux,windows)", false),
            ("!os", false),
            ("!none,os", true),
            ("a/b=", true),
        ] {
            let selector: LabelSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels), expected, "{text}");
        }
    }

    #[test]
    fn unreadable_texts_are_refused() {
        for text in ["os in (a", "os in a)", "os (a)", "=x", "a b", "a=b c", "a,,b", "a in (b) c"] {
            assert!(text.parse::<LabelSelector>().is_err(), "{text:?} was accepted");
        }
    }
}
