//! A CNI plugin of a few lines, for tests of what surrounds the plugin.

use std::{fs, os::unix::fs::PermissionsExt};

use anyhow::Result;
use devcluster::{Node, sandbox};
use serde_json::json;

/// ADD gives the namespace an address by hand; what it was given is written down in `/run/seen.*`. While `/run/broken`
/// exists, ADD fails.
const PLUGIN: &str = r#"#!/bin/sh -e
env > "/run/seen.$CNI_COMMAND"
cat > "/run/seen.$CNI_COMMAND.conf"
echo "$CNI_COMMAND $CNI_CONTAINERID" >> /run/calls
name=${CNI_NETNS##*/}
case "$CNI_COMMAND" in
ADD)
    if [ -e /run/broken ]; then
        echo '{"cniVersion":"1.1.0","code":11,"msg":"no address yet","details":"a test"}'
        exit 1
    fi
    last=$(printf %d "0x$(printf %.2s "$CNI_CONTAINERID")")
    ip link add "v$(printf %.8s "$CNI_CONTAINERID")" type veth peer name "$CNI_IFNAME" netns "$name"
    ip -n "$name" address add "10.9.0.$last/24" dev "$CNI_IFNAME"
    echo '{"cniVersion":"1.1.0","interfaces":[{"name":"veth","mac":"02:00:00:00:00:01"},
      {"name":"eth0","mac":"0a:58:0a:09:00:07","sandbox":"'"$CNI_NETNS"'"}],
      "ips":[{"interface":1,"address":"10.9.0.'"$last"'/24","gateway":"10.9.0.1"}]}' ;;
DEL) ;;
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
*) echo '{"cniVersion":"1.1.0","code":50,"msg":"not ready","details":"a test"}'; exit 1 ;;
esac
"#;

/// Puts the plugin and its configuration on a node, the configuration last.
pub(crate) fn install(node: &Node) -> Result<()> {
    let plugin = node.outside(sandbox::PLUGIN_DIR).join("fake");
    fs::write(&plugin, PLUGIN)?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755))?;
    let conf = json!({ "cniVersion": "1.1.0", "name": "fake", "type": "fake" });
    fs::write(node.outside(sandbox::CONF_DIR).join("10-fake.conf"), conf.to_string())?;
    Ok(())
}
