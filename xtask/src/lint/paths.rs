//! No file names a folder of the machine that it was written on.

use super::{Breach, Source};

/// Put together here, so that this file does not break its own rule.
const FOLDERS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp", "/sf")];

/// Looks at every text file.
pub fn check(sources: &[Source]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for source in sources {
        for (i, line) in source.text.lines().enumerate() {
            if let Some(folder) = FOLDERS.iter().find(|folder| starts_a_path(line, folder)) {
                breaches.push(source.breach(i + 1, format!("`{folder}`: should be no folder of one machine")));
            }
        }
    }
    breaches
}

/// `folder` occurs in the line, and is not the middle of a longer path.
fn starts_a_path(line: &str, folder: &str) -> bool {
    let is_start = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-/".contains(c));
    line.match_indices(folder).any(|(at, _)| is_start(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_the_top_and_not_a_part_of_one() {
        let folder = FOLDERS[0];
        assert!(starts_a_path(&format!("cd {folder}main"), folder));
        assert!(!starts_a_path(&format!("https://example.org{folder}main"), folder));
        let source = Source { path: "a.md".into(), text: format!("x\n`{folder}y`\n") };
        assert_eq!(check(&[source])[0].place, "a.md:2");
    }
}
