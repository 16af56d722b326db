//! The option table: what one setting is called, where it may come from and how its text is read.
//!
//! Each section of [`crate::options`] declares its fields once with the macro `section`; the struct, the flag parser, the file
//! reader, `--help`, `config show` and the documentation all come from that declaration.

use crate::codec::Codec;

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name of the flag without dashes; also the name in [`crate::Config::origin`]. A setting without a flag has a name too.
    pub name: &'static str,
    /// Whether there is a flag of that name (some settings exist only in the file or the environment).
    pub flag: bool,
    /// Further flag names.
    pub aliases: &'static [&'static str],
    /// Those of `aliases` whose use gives a warning.
    pub deprecated: &'static [&'static str],
    /// `section.key` names in the file, the usual one first; empty if the file cannot set it.
    pub keys: &'static [&'static str],
    /// Environment variable.
    pub env: Option<&'static str>,
    /// Text of the default; empty means unset.
    pub default: &'static str,
    /// What it does, one or two sentences.
    pub help: &'static str,
    /// Heading under which `--help` lists it.
    pub group: &'static str,
    /// The feature this belongs to, a name in [`crate::features::FEATURES`]; none for what every process needs.
    pub feature: Option<&'static str>,
    /// The value must not be printed.
    pub secret: bool,
    /// A flag without a value means true.
    pub boolean: bool,
    /// Numbers and booleans: on the command line a value equal to the default does not override the file.
    pub weak_default: bool,
    /// What stands for the value in `--help`.
    pub placeholder: &'static str,
    /// Reads the text; the error says what is wrong with it.
    pub check: fn(&str) -> Result<(), String>,
    /// Whether two texts mean the same value.
    pub same: fn(&str, &str) -> bool,
}

impl Spec {
    /// A nameless spec with the properties of codec `C`.
    pub(crate) const fn of<C: Codec>() -> Spec {
        Spec {
            name: "",
            flag: true,
            aliases: &[],
            deprecated: &[],
            keys: &[],
            env: None,
            default: "",
            help: "",
            group: "",
            feature: None,
            secret: false,
            boolean: C::BOOLEAN,
            weak_default: C::WEAK_DEFAULT,
            placeholder: C::PLACEHOLDER,
            check: check::<C>,
            same: same::<C>,
        }
    }

    /// Help text on one line.
    pub fn help_line(&self) -> String {
        self.help.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// How an operator would write it: `--flag`, else the file's `[section] key`, else the environment variable.
    pub fn spelled(&self) -> String {
        match (self.flag, self.keys.first().and_then(|k| k.split_once('.')), self.env) {
            (true, ..) => format!("--{}", self.name),
            (false, Some((section, key)), _) => format!("[{section}] {key}"),
            (false, None, Some(env)) => format!("${env}"),
            (false, None, None) => self.name.to_owned(),
        }
    }
}

fn check<C: Codec>(text: &str) -> Result<(), String> {
    C::parse(text).map(drop)
}

fn same<C: Codec>(a: &str, b: &str) -> bool {
    match (C::parse(a), C::parse(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// Declares a section: its struct, its part of the option table and how the struct is filled.
///
/// A line reads `/// help` `field: Type [Codec] = "flag-name", [keys], "default" { more Spec fields };`
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        $name:ident, $group:literal;
        $(
            $(#[doc = $help:literal])+
            $field:ident : $ty:ty [$codec:ty] = $flag:literal, [$($key:literal),*], $default:literal
            $( { $($extra:ident : $value:expr),+ $(,)? } )? ;
        )*
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $help])+ pub $field: $ty, )*
        }

        impl $name {
            pub(crate) const OPTIONS: &'static [$crate::spec::Spec] = &[
                $( $crate::spec::Spec {
                    name: $flag,
                    keys: &[$($key),*],
                    default: $default,
                    help: concat!($($help, "\n"),+),
                    group: $group,
                    $( $($extra: $value,)+ )?
                    ..$crate::spec::Spec::of::<$codec>()
                }, )*
            ];

            pub(crate) fn read(values: &$crate::values::Values) -> Result<Self, $crate::error::ConfigError> {
                Ok(Self { $( $field: values.get::<$codec>($flag)?, )* })
            }
        }
    };
}
pub(crate) use section;
