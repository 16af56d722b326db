//! Label selectors and blocks of addresses.

use serde_json::{Value, json};

use super::Dice;
use super::objects::{NAMESPACES, VALUES};

/// A selector over `keys`; empty now and then.
pub(super) fn selector(dice: &mut Dice, keys: &[&str]) -> Value {
    let mut selector = serde_json::Map::new();
    if dice.chance(20) {
        return Value::Object(selector);
    }
    if dice.chance(55) {
        let key = *dice.pick(keys);
        selector.insert("matchLabels".into(), json!({ key: dice.pick(&VALUES) }));
    }
    if selector.is_empty() || dice.chance(25) {
        let count = 1 + dice.below(2);
        let list: Vec<Value> = (0..count).map(|_| requirement(dice, keys)).collect();
        selector.insert("matchExpressions".into(), list.into());
    }
    Value::Object(selector)
}

fn requirement(dice: &mut Dice, keys: &[&str]) -> Value {
    let key = *dice.pick(keys);
    let operator = *dice.pick(&["In", "NotIn", "Exists", "DoesNotExist"]);
    if matches!(operator, "Exists" | "DoesNotExist") {
        return json!({ "key": key, "operator": operator });
    }
    // Values may repeat and come in any order.
    let values: Vec<&str> = (0..1 + dice.below(3)).map(|_| *dice.pick(&VALUES)).collect();
    json!({ "key": key, "operator": operator, "values": values })
}

/// A selector of namespaces; also by the label that carries their name.
pub(super) fn namespaces(dice: &mut Dice) -> Value {
    if dice.chance(20) {
        let name = *dice.pick(&NAMESPACES);
        return json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
    }
    selector(dice, &["team", "env"])
}

/// A block that means something here: all, a node's pods, one pod, nodes, somewhere outside.
pub(super) fn cidr(dice: &mut Dice, addresses: &[String]) -> String {
    let one = dice.pick(addresses).clone();
    let full = if one.contains(':') { 128 } else { 32 };
    match dice.below(10) {
        0 => (*dice.pick(&["0.0.0.0/0", "::/0"])).to_owned(),
        1 => (*dice.pick(&["203.0.113.0/24", "198.51.100.0/24", "2001:db8::/32", "2001:db8:1::/48"]))
            .to_owned(),
        2 => (*dice.pick(&["10.244.0.0/16", "fd00:10:244::/48", "172.18.0.0/16"])).to_owned(),
        3 | 4 if full == 32 => format!("{one}/{}", dice.pick(&[31, 30, 29, 24])),
        3 | 4 => format!("{one}/{}", dice.pick(&[127, 126, 64])),
        _ => format!("{one}/{full}"),
    }
}

/// A block with parts of it taken out.
pub(super) fn ip_block(dice: &mut Dice, addresses: &[String]) -> Value {
    let mut cidr = cidr(dice, addresses);
    let mut except = Vec::new();
    if dice.chance(60) {
        let one = dice.pick(addresses).clone();
        let is_v6 = one.contains(':');
        let (full, wide) = if is_v6 { (128, 64) } else { (32, 24) };
        // What is taken out has to lie inside.
        cidr = match (is_v6, dice.below(3)) {
            (true, 0) => "::/0".to_owned(),
            (false, 0) => "0.0.0.0/0".to_owned(),
            _ => format!("{one}/{wide}"),
        };
        except.push(format!("{one}/{full}"));
        if dice.chance(40) {
            except.push(format!("{one}/{}", full - 2));
        }
    }
    if except.is_empty() { json!({ "cidr": cidr }) } else { json!({ "cidr": cidr, "except": except }) }
}
