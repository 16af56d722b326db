//! Which decisions are logged, and how loud.

use std::collections::BTreeMap;

/// Annotation of namespaces and of administrators' policies: `{"deny": "alert", "allow": "info"}`.
pub const ACL_LOGGING: &str = "k8s.ovn.org/acl-logging";

/// How loud a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something must be done at once.
    Alert,
    /// Something may be wrong.
    Warning,
    /// Worth knowing.
    Notice,
    /// Ordinary.
    Info,
    /// For those who look closely.
    Debug,
}

impl Severity {
    /// The word OVN and the annotation use.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Alert => "alert",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
            Severity::Info => "info",
            Severity::Debug => "debug",
        }
    }

    fn parse(word: &str) -> Result<Option<Severity>, String> {
        let all = [Severity::Alert, Severity::Warning, Severity::Notice, Severity::Info, Severity::Debug];
        if word.is_empty() {
            return Ok(None);
        }
        match all.into_iter().find(|severity| severity.name() == word) {
            Some(severity) => Ok(Some(severity)),
            None => {
                Err(format!("{word:?} is no severity; use alert, warning, notice, info, debug or nothing"))
            }
        }
    }
}

/// What is logged: nothing where there is no severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Logging {
    /// Traffic that is denied.
    pub deny: Option<Severity>,
    /// Traffic that is allowed.
    pub allow: Option<Severity>,
    /// Traffic left to the next tier.
    pub pass: Option<Severity>,
}

impl Logging {
    /// Reads the annotation's value; an empty one switches logging off.
    ///
    /// # Errors
    /// What is wrong with it, in words. Nothing is logged then.
    pub fn parse(value: &str) -> Result<Logging, String> {
        if value.trim().is_empty() {
            return Ok(Logging::default());
        }
        let of = |problem: String| {
            format!(
                "annotation {ACL_LOGGING}: {problem}; expected e.g. {{\"deny\": \"alert\", \"allow\": \"info\"}}"
            )
        };
        let words: BTreeMap<String, String> =
            serde_json::from_str(value).map_err(|error| of(error.to_string()))?;
        let severity = |key: &str| Severity::parse(words.get(key).map_or("", String::as_str)).map_err(of);
        Ok(Logging { deny: severity("deny")?, allow: severity("allow")?, pass: severity("pass")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused_whole() {
        let both = Logging::parse(r#"{"deny": "alert", "allow": "notice"}"#).unwrap();
        assert_eq!(both, Logging { deny: Some(Severity::Alert), allow: Some(Severity::Notice), pass: None });
        for off in ["", "{}", r#"{"deny": ""}"#] {
            assert_eq!(Logging::parse(off).unwrap(), Logging::default(), "{off:?}");
        }
        for bad in ["alert", r#"{"deny": "loud", "allow": "info"}"#, "[]", r#"{"deny": 1}"#] {
            assert!(Logging::parse(bad).is_err(), "{bad:?}");
        }
    }
}
