//! The syntax of a flag's value in the chart's schema: helm refuses a value with
//! invalid syntax before a pod crashes because of it.
//!
//! The schema must never refuse what the agent accepts. It may accept what a
//! pattern cannot detect, such as bits beyond a prefix: the agent refuses those.

use clap::Arg;
use serde_json::{Value, json};

/// Below 256.
const OCTET: &str = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
/// Groups and colons; their number is not checked.
const IPV6: &str = "([0-9A-Fa-f]{0,4}:){2,8}[0-9A-Fa-f.]{0,15}";
/// 10,000 to 65,535.
const FIVE_DIGITS: &str = "[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]";
/// The levels of `tracing`.
const LEVEL: &str = "([Oo][Ff][Ff]|[Ee][Rr][Rr][Oo][Rr]|[Ww][Aa][Rr][Nn]|[Ii][Nn][Ff][Oo]|\
                     [Dd][Ee][Bb][Uu][Gg]|[Tt][Rr][Aa][Cc][Ee]|[0-5])";

/// The syntax of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// One of a few words.
    Words(Vec<String>),
    /// A whole number.
    Number {
        /// The smallest.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// A range of addresses.
    Cidr,
    /// Such ranges, one of a family.
    Cidrs,
    /// Such ranges, or words for addresses of the node.
    NodePortsAt,
    /// Such ranges, or a word for all.
    LoadBalancersIn,
    /// A folder of the node.
    Folder,
    /// An API server.
    Url,
    /// Where to listen. The pod's own address is put in by kubelet.
    Listener,
    /// `auto`, or bytes.
    Mtu,
    /// A time with its unit, or 0.
    Time,
    /// What is logged.
    Filter,
}

impl Shape {
    /// By what the flag's help calls the value.
    pub fn of(argument: &Arg) -> Self {
        let words = argument.get_possible_values();
        if !words.is_empty() {
            let names = words.iter().map(|word| word.get_name().to_owned());
            return Self::Words(names.collect());
        }
        let name = argument.get_value_names().unwrap()[0].as_str();
        match name {
            "CIDR" if argument.get_id() == "nodeport_addresses" => Self::NodePortsAt,
            "CIDR" if argument.get_id() == "load_balancer_cidrs" => Self::LoadBalancersIn,
            "VNI" => Self::Number {
                least: 1,
                most: 16_777_215,
            },
            "PORT" => Self::Number {
                least: 1,
                most: 65_535,
            },
            "NUMBER" if argument.get_id() == "fast_path_flows" => Self::Number {
                least: 1024,
                most: 16_777_216,
            },
            "CIDR" if argument.get_value_delimiter().is_some() => Self::Cidrs,
            "CIDR" => Self::Cidr,
            "DIR" => Self::Folder,
            "URL" => Self::Url,
            "ADDR:PORT" => Self::Listener,
            "MTU" => Self::Mtu,
            "TIME" => Self::Time,
            "LEVEL" => Self::Filter,
            other => panic!("{other}: say here what it looks like"),
        }
    }

    /// As a JSON schema. Its patterns keep to what Go and JavaScript both read.
    pub fn schema(&self) -> Value {
        match self {
            Self::Words(words) => {
                // YAML reads on and off without quotes as booleans.
                let is_word = |one: &str| words.iter().any(|word| word == one);
                let switches = [("on", true), ("off", false)];
                let booleans = switches.iter().filter(|(word, _)| is_word(word));
                let texts = words.iter().map(|word| json!(word));
                let all: Vec<Value> = texts.chain(booleans.map(|(_, one)| json!(one))).collect();
                json!({ "enum": all })
            }
            Self::Number { least, most } => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Self::Cidr => text(&cidr()),
            Self::Cidrs => {
                let mut list = one_or_several(&cidr());
                list["maxItems"] = json!(2);
                list["uniqueItems"] = json!(true);
                list
            }
            Self::NodePortsAt => {
                let mut list = one_or_several(&format!("^(primary|all)$|{}", cidr()));
                list["minItems"] = json!(1);
                list
            }
            Self::LoadBalancersIn => {
                let mut list = one_or_several(&format!("^all$|{}", cidr()));
                list["minItems"] = json!(1);
                list
            }
            Self::Folder => text("^/"),
            Self::Url => text(r"^https://[^/?#\s]+/?$"),
            Self::Listener => {
                let ipv4 = ipv4();
                let port = format!("([1-9][0-9]{{0,3}}|{FIVE_DIGITS})");
                text(&format!(
                    r"^(\$\(NODE_IP\)|{ipv4}|{IPV6}|\[{IPV6}\]):{port}$"
                ))
            }
            Self::Mtu => {
                let bytes =
                    format!("57[6-9]|5[89][0-9]|[6-9][0-9]{{2}}|[1-9][0-9]{{3}}|{FIVE_DIGITS}");
                json!({
                    "type": ["string", "integer"],
                    "pattern": format!("^(auto|{bytes})$"),
                    "minimum": 576,
                    "maximum": 65_535,
                })
            }
            Self::Time => json!({
                "type": ["string", "integer"],
                "pattern": r"^(0|\+?[0-9]+(ms|s))$",
                "minimum": 0,
                "maximum": 0,
            }),
            Self::Filter => {
                // Spans and fields are checked by the agent only.
                let directive = format!(r"[^=,\[\]{{}}]+(={LEVEL}?)?");
                text(&format!(r"^{directive}(,{directive})*$|[\[{{]"))
            }
        }
    }

    /// A value, not the default.
    pub fn another(&self) -> Value {
        match self {
            Self::Words(words) => json!(words.last()),
            // Large: Helm would write it as 1.6777215e+07.
            Self::Number { most, .. } => json!(most),
            Self::Cidr => json!("192.0.2.0/24"),
            Self::Cidrs => json!(["10.0.0.0/8", "fd00::/48"]),
            Self::NodePortsAt => json!(["primary", "192.0.2.0/24"]),
            Self::LoadBalancersIn => json!(["192.0.2.0/24", "2001:db8::/32"]),
            Self::Folder => json!("/other"),
            Self::Url => json!("https://192.0.2.10:6443"),
            Self::Listener => json!("[fd00::1]:9999"),
            Self::Mtu => json!(1400),
            Self::Time => json!("500ms"),
            Self::Filter => json!("info,tweed_nft=debug"),
        }
    }
}

fn text(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

/// A list of such texts, or one of them without a list.
fn one_or_several(pattern: &str) -> Value {
    json!({ "type": ["array", "string"], "items": text(pattern), "pattern": pattern })
}

fn ipv4() -> String {
    format!(r"({OCTET}\.){{3}}{OCTET}")
}

fn cidr() -> String {
    let ipv4 = ipv4();
    format!("^({ipv4}/(3[0-2]|[12]?[0-9])|{IPV6}/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$")
}

/// A value as the agent's variable has it.
pub fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
        Value::Array(items) => items.iter().map(as_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
