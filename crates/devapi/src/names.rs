//! The rules for names, labels and annotations. Each function gives the reason a text is wrong.

/// A DNS-1123 label: lower case letters, digits and inner dashes, up to 63.
pub(crate) fn dns_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    (!label_shape(text)).then(|| {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
         end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .into()
    })
}

fn label_shape(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.iter().all(|b| inner(*b) || *b == b'-')
        && bytes.first().is_some_and(|b| inner(*b))
        && bytes.last().is_some_and(|b| inner(*b))
}

/// A DNS-1035 label: a DNS-1123 label that begins with a letter (Services).
pub(crate) fn dns_1035_label(text: &str) -> Option<String> {
    let ok =
        text.len() <= 63 && label_shape(text) && text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    (!ok).then(|| {
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
         character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
         validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            .into()
    })
}

/// A DNS-1123 subdomain: labels joined by dots, up to 253.
pub(crate) fn dns_subdomain(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 characters".into());
    }
    let ok = !text.is_empty() && text.split('.').all(label_shape);
    (!ok).then(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
         start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .into()
    })
}

/// A name usable as one segment of a path (RBAC objects).
pub(crate) fn path_segment(text: &str) -> Option<String> {
    match text {
        "." | ".." => Some(format!("may not be '{text}'")),
        t if t.contains('/') => Some("may not contain '/'".into()),
        t if t.contains('%') => Some("may not contain '%'".into()),
        _ => None,
    }
}

fn name_part(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.iter().all(|b| inner(b) || matches!(b, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(inner)
        && bytes.last().is_some_and(inner)
}

/// Key of a label or annotation: an optional DNS prefix and a name.
pub(crate) fn qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(why) = prefix.and_then(dns_subdomain) {
        return Some(format!("prefix part {why}"));
    }
    (!name_part(name)).then(|| {
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            .into()
    })
}

/// Value of a label.
pub(crate) fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    (!text.is_empty() && !name_part(text)).then(|| {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
         start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "a-b", "0a", "a.b-c.d"] {
            assert_eq!(dns_subdomain(good), None, "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", &"a".repeat(254)] {
            assert!(dns_subdomain(bad).is_some(), "{bad}");
        }
        assert!(dns_label("a.b").is_some());
        assert!(dns_1035_label("0a").is_some());
        for good in ["a", "app.kubernetes.io/name", "A_b.c"] {
            assert_eq!(qualified_name(good), None, "{good}");
        }
        for bad in ["", "/a", "a/b/c", "-a", "X/ok", &"a".repeat(64)] {
            assert!(qualified_name(bad).is_some(), "{bad}");
        }
        assert_eq!(label_value(""), None);
        assert!(label_value("a b").is_some());
    }
}
