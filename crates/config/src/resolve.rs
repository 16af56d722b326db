//! Weighs the sources: command line > file > environment > service account > default.

use crate::{
    Source,
    args::{self, Given},
    error::ConfigError,
    features, ini, options,
    origin::Origin,
    spec::Spec,
    suggest::nearest,
    values::Values,
    warning::Warning,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Where Kubernetes mounts a pod's credentials.
pub(crate) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The effective settings, not yet validated together.
pub(crate) fn resolve(source: &Source<'_>) -> Result<(Values, Vec<Warning>), ConfigError> {
    let Given { flags, mut warnings } = args::parse(source.args)?;
    let mut values = Values::defaults();

    for spec in options::all() {
        if let Some(name) = spec.env
            && let Some(text) = (source.env)(name).filter(|t| !t.trim().is_empty())
        {
            values.set(spec, text, Origin::Env { name });
        }
    }
    apply_file(source, &flags, &mut values, &mut warnings)?;
    apply_flags(flags, &mut values, &mut warnings);
    apply_service_account(source, &mut values);

    let errors = options::all()
        .filter_map(|spec| {
            // Only what somebody set can be wrong; a test holds the defaults right.
            let reason = (spec.check)(values.text(spec.name)).err()?;
            Some(values.bad(spec.name, reason))
        })
        .collect();
    ConfigError::collect(errors)?;
    warnings.extend(not_built(&values));
    Ok((values, warnings))
}

fn apply_file(
    source: &Source<'_>,
    flags: &[(&'static Spec, String)],
    values: &mut Values,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    let named =
        flags.iter().rfind(|(s, v)| s.name == "config-file" && !v.is_empty()).map(|(_, v)| v.as_str());
    let path = PathBuf::from(named.unwrap_or_else(|| values.text("config-file")));
    let bytes = match (source.read_file)(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound && named.is_none() => return Ok(()),
        Err(e) => {
            let cure =
                if named.is_some() { "; correct --config-file" } else { "; make it readable or remove it" };
            return Err(ConfigError::Read { path, reason: e.to_string(), cure: cure.into() });
        }
    };
    let text = utf8(&path, bytes)?;
    let ini = ini::parse(&text).map_err(|e| ConfigError::Syntax {
        path: path.clone(),
        line: e.line,
        column: e.column,
        reason: e.reason,
    })?;

    for (section, line) in &ini.sections {
        if !options::has_section(section) {
            warnings.push(Warning::UnknownSection {
                path: path.clone(),
                line: *line,
                section: section.clone(),
            });
        }
    }
    let mut errors = Vec::new();
    for entry in ini.entries {
        let Some(spec) = options::by_key(&entry.section, &entry.key) else {
            if options::has_section(&entry.section) {
                warnings.push(unknown_key(&path, entry));
            }
            continue;
        };
        let origin = Origin::File { path: path.clone(), line: entry.line };
        let text = match entry.value {
            Some(text) => text,
            None if spec.boolean => "true".to_owned(),
            None => {
                errors.push(ConfigError::Value {
                    setting: format!("[{}] {} (from {origin})", entry.section, entry.key),
                    reason: format!("has no value; write {} = {}", entry.key, spec.placeholder),
                });
                continue;
            }
        };
        if matches!(values.entry(spec.name).map(|v| &v.origin), Some(Origin::File { .. })) {
            let key = format!("[{}] {}", entry.section, entry.key);
            warnings.push(Warning::RepeatedKey { path: path.clone(), line: entry.line, key });
        }
        // An empty value means unset, as it does in deployments that template the file.
        if text.trim().is_empty() {
            continue;
        }
        values.set(spec, text, origin);
    }
    ConfigError::collect(errors)
}

fn unknown_key(path: &Path, entry: ini::Entry) -> Warning {
    let keys = options::all().flat_map(|s| s.keys).filter_map(|k| k.split_once('.'));
    let same_section = keys.filter(|(s, _)| s.eq_ignore_ascii_case(&entry.section)).map(|(_, k)| k);
    Warning::UnknownKey {
        path: path.to_owned(),
        line: entry.line,
        suggestion: nearest(&entry.key.to_ascii_lowercase(), same_section).map(str::to_owned),
        section: entry.section,
        key: entry.key,
    }
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line_start = good.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        ConfigError::Syntax {
            path: path.to_owned(),
            line: good.iter().filter(|b| **b == b'\n').count() + 1,
            column: String::from_utf8_lossy(&good[line_start..]).chars().count() + 1,
            reason: "this is not UTF-8".into(),
        }
    })
}

fn apply_flags(flags: Vec<(&'static Spec, String)>, values: &mut Values, warnings: &mut Vec<Warning>) {
    for (spec, text) in flags {
        // Start scripts pass every flag, those without a value empty.
        if text.trim().is_empty() {
            continue;
        }
        // The reference cannot tell a number or boolean equal to its default from one that was not given; running clusters
        // depend on their file winning over such flags of the start script.
        if spec.weak_default
            && (spec.same)(&text, spec.default)
            && let Some(current) = values.entry(spec.name)
            && !matches!(current.origin, Origin::Default | Origin::Flag)
        {
            if !(spec.same)(&text, &current.text) {
                warnings.push(Warning::FileKept {
                    flag: format!("--{}={text}", spec.name),
                    kept: format!("{} from {}", current.text, current.origin),
                });
            }
            continue;
        }
        values.set(spec, text, Origin::Flag);
    }
}

/// Credentials of the pod, for what nobody set.
fn apply_service_account(source: &Source<'_>, values: &mut Values) {
    if !values.is_default("k8s-kubeconfig") {
        return;
    }
    let set_file = |values: &mut Values, name: &str, file: &str| {
        let path = Path::new(SERVICE_ACCOUNT).join(file);
        if let Some(spec) = options::by_name(name)
            && (source.read_file)(&path).is_ok()
        {
            values.set(spec, path.display().to_string(), Origin::ServiceAccount { path });
            return true;
        }
        false
    };
    let mut in_pod = false;
    if values.is_default("k8s-token") && values.is_default("k8s-token-file") {
        in_pod = set_file(values, "k8s-token-file", "token");
    }
    if values.is_default("k8s-cacert") && values.is_default("k8s-cacert-data") {
        set_file(values, "k8s-cacert", "ca.crt");
    }
    // A pod is told where its API server is.
    let env = |name| (source.env)(name).filter(|t| !t.is_empty());
    if in_pod
        && values.is_default("k8s-apiserver")
        && let Some(spec) = options::by_name("k8s-apiserver")
        && let (Some(host), Some(port)) = (env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT"))
    {
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        values.set(spec, format!("https://{host}:{port}"), Origin::Env { name: "KUBERNETES_SERVICE_HOST" });
    }
}

/// One warning for each feature that was asked for and does not exist yet.
fn not_built(values: &Values) -> impl Iterator<Item = Warning> {
    features::FEATURES.iter().filter(|f| !f.built).filter_map(|feature| {
        let asked = |s: &&Spec| {
            let changed = !values.is_default(s.name) && !(s.same)(values.text(s.name), s.default);
            s.feature == Some(feature.name) && changed
        };
        let settings: Vec<String> = options::all().filter(asked).map(Spec::spelled).collect();
        (!settings.is_empty()).then_some(Warning::NotBuilt { feature: feature.title, settings })
    })
}
