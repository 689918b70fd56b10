//! Checks the memory that an experiment needs before it runs.

use crate::error::LabError;

const GIB: f64 = (1u64 << 30) as f64;

/// How much memory the host has to have, and which option sets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// As it is typed: `--gib`.
    pub option: &'static str,
    /// The option's value as it was typed.
    pub given: String,
    /// A further condition, such as `with 3 processes`; may be empty.
    pub condition: String,
    /// Bytes.
    pub bytes: u64,
}

impl Need {
    /// Memory that depends on one option alone.
    pub fn of(option: &'static str, given: impl ToString, bytes: u64) -> Need {
        Need { option, given: given.to_string(), condition: String::new(), bytes }
    }

    /// Refuses an experiment that needs more than what is available; where that is unknown, none.
    pub fn check(&self, available: Option<u64>) -> Result<(), LabError> {
        match available {
            Some(available) if self.bytes > available => Err(self.refusal(available)),
            _ => Ok(()),
        }
    }

    /// The error that names the option, what it needs and what there is.
    pub fn refusal(&self, available: u64) -> LabError {
        let condition = if self.condition.is_empty() { String::new() } else { format!("{} ", self.condition) };
        let wanted = format!(
            "{condition}needs {} of memory and {} are available: should be smaller",
            size(self.bytes),
            size(available)
        );
        LabError::Argument { name: self.option, given: self.given.clone(), wanted }
    }
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 30 { format!("{:.1} GiB", bytes as f64 / GIB) } else { format!("{} MiB", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_refused_with_both_sizes() {
        let need = Need { condition: "with 3 processes".into(), ..Need::of("--mib", 512, 3 << 29) };
        assert!(need.check(None).is_ok() && need.check(Some(3 << 29)).is_ok());
        let error = need.check(Some(700 << 20)).unwrap_err().to_string();
        let wanted = "--mib 512: with 3 processes needs 1.5 GiB of memory and 700 MiB are available: should be smaller";
        assert_eq!(error, wanted);
    }
}
