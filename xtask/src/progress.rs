//! The progress of a test run, read from the output of cargo and `libtest`.

/// The test program that runs, and those of its tests that take long.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    program: Option<String>,
    slow: Vec<String>,
    /// Lines that have not ended yet.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Progress {
    /// Takes what `libtest` has printed.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for line in lines(&mut self.stdout, bytes) {
            let Some(test) = line.strip_prefix("test ") else { continue };
            if let Some((name, _)) = test.split_once(" has been running for over ") {
                self.slow.push(name.to_owned());
            } else if let Some((name, _)) = test.split_once(" ... ") {
                self.slow.retain(|slow| slow != name);
            }
        }
    }

    /// Takes what cargo has printed: which program runs now.
    pub(crate) fn read_cargo(&mut self, bytes: &[u8]) {
        for line in lines(&mut self.stderr, bytes) {
            let start = ["Running", "Doc-tests"].into_iter().find_map(|it| line.split_once(it));
            if let Some((_, program)) = start {
                // In front of it there may be what makes a terminal stop using a colour.
                let program = program.split_once(' ').map(|(_, program)| program.to_owned());
                (self.program, self.slow) = (program, Vec::new());
            }
        }
    }

    /// Where the tests hang, as far as they have said.
    pub(crate) fn hung(&self) -> String {
        let program = self.program.as_deref().unwrap_or("no program that is known");
        match &self.slow[..] {
            [] => program.to_owned(),
            slow => {
                let of = self.program.as_deref().map(|it| format!(" of {it}")).unwrap_or_default();
                format!("test {}{of}", slow.join(", "))
            }
        }
    }
}

/// The lines that end in `bytes`; what is left over waits in `rest` for its end.
fn lines(rest: &mut Vec<u8>, bytes: &[u8]) -> Vec<String> {
    rest.extend(bytes);
    let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let ended: Vec<u8> = rest.drain(..end).collect();
    String::from_utf8_lossy(&ended).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_take_long_and_have_not_ended_are_named_with_their_program() {
        let mut progress = Progress::default();
        assert_eq!(progress.hung(), "no program that is known");
        progress.read_cargo(b"   Compiling a\n     Running tests/it/main.rs (target/it-1)\n");
        assert_eq!(progress.hung(), "tests/it/main.rs (target/it-1)");
        progress.read(b"test a ... ok\ntest b has been running for over 60 seconds\ntest c has b");
        progress.read(b"een running for over 60 seconds\n");
        assert_eq!(progress.hung(), "test b, c of tests/it/main.rs (target/it-1)");
        progress.read(b"test b ... FAILED\n");
        assert_eq!(progress.hung(), "test c of tests/it/main.rs (target/it-1)");
        progress.read_cargo("   \u{1b}[32mDoc-tests\u{1b}[0m taskharbor\n".as_bytes());
        assert_eq!(progress.hung(), "taskharbor");
    }
}
