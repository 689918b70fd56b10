//! The test targets that are built together: those of a folder `tests`, but for the files that its `all` has as modules.

use crate::shell;
use std::fs;
use std::path::Path;

/// The target that has other files as modules.
pub const ALL: &str = "all";

/// Cargo's arguments for the tests of these folders in `crates`.
pub fn targets(folders: &[&str]) -> Result<String, String> {
    let mut names = Vec::new();
    for folder in folders {
        names.extend(targets_in(&shell::top().join("crates").join(folder).join("tests"))?);
    }
    names.sort();
    names.dedup();
    Ok(names.iter().map(|name| format!("--test {name}")).collect::<Vec<_>>().join(" "))
}

/// Those of one folder, which need not exist. A module that `all` forgets is a target of its own, so that nothing is left out.
fn targets_in(tests: &Path) -> Result<Vec<String>, String> {
    let Ok(entries) = fs::read_dir(tests) else { return Ok(Vec::new()) };
    let all = fs::read_to_string(tests.join(ALL).join("main.rs")).unwrap_or_default();
    let modules: Vec<&str> = modules(&all).collect();
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| format!("{}: {e}", tests.display()))?.path();
        let is_target = path.extension().is_some_and(|kind| kind == "rs") || path.join("main.rs").is_file();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if is_target && !modules.contains(&name.as_str()) {
            names.push(name);
        }
    }
    Ok(names)
}

fn modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("mod ")?.strip_suffix(';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_target_or_part_of_one() {
        let tests = shell::top().join("crates/testkit/tests");
        let targets = targets_in(&tests).unwrap();
        let all = fs::read_to_string(tests.join("all/main.rs")).unwrap();
        let modules: Vec<&str> = modules(&all).collect();
        assert!(targets.contains(&"all".into()) && targets.contains(&"formats".into()), "{targets:?}");
        assert!(modules.contains(&"ages") && modules.contains(&"fast_path") && !targets.contains(&"ages".into()));
        let entries = fs::read_dir(&tests).unwrap().map(|entry| entry.unwrap().path());
        for entry in entries.filter(|entry| entry.is_file() || entry.join("main.rs").is_file()) {
            let name = entry.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(targets.contains(&name) != modules.contains(&name.as_str()), "{name}");
        }
        assert!(targets_in(&tests.join("nowhere")).unwrap().is_empty());
    }
}
