//! The chassis id: `external_ids:system-id`, the name under which OVN knows this machine.
//!
//! It must never change while the node lives, or its tunnels and port bindings hang on a chassis that is gone. So it
//! is taken from whoever remembers it, and made up only when nobody does.

use std::fs;
use std::path::Path;

use kapi::Meta;
use kapi::annotations::CHASSIS_ID;

/// The id a fresh Open vSwitch gets: what the distribution's start scripts would set, else what the node was known by
/// before its database was lost, else a new one.
pub fn choose(file: &Path, node: &Meta) -> std::io::Result<String> {
    if let Some(id) = fs::read_to_string(file).ok().as_deref().and_then(usable) {
        return Ok(id);
    }
    if let Some(id) = node.annotation(CHASSIS_ID).and_then(usable) {
        return Ok(id);
    }
    fs::read_to_string("/proc/sys/kernel/random/uuid").map(|text| text.trim().to_owned())
}

/// Writes the id where the start scripts look for it, unless the file exists.
pub fn persist(file: &Path, id: &str) -> std::io::Result<()> {
    if file.exists() {
        return Ok(());
    }
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(file, format!("{id}\n"))
}

fn usable(text: &str) -> Option<String> {
    let id = text.trim();
    (!id.is_empty() && !id.contains(char::is_whitespace)).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_by_file_then_by_annotation_then_new() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("openvswitch/system-id.conf");
        let mut node = Meta::default();
        let (first, second) = (choose(&file, &node).unwrap(), choose(&file, &node).unwrap());
        assert_ne!(first, second);
        assert_eq!(first.len(), 36);
        node.annotations.insert(CHASSIS_ID.into(), "known-before".into());
        assert_eq!(choose(&file, &node).unwrap(), "known-before");
        persist(&file, &first).unwrap();
        persist(&file, "another").unwrap();
        assert_eq!(choose(&file, &node).unwrap(), first, "the file is not overwritten and wins");
        fs::write(&file, "\n").unwrap();
        assert_eq!(choose(&file, &node).unwrap(), "known-before", "an empty file says nothing");
    }
}
