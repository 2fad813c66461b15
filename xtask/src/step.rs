//! A sequence of named steps that stops at the first failure and prints the time of each step.

use std::process::Command;
use std::time::Instant;

use crate::Failure;
use crate::shell::run;
use crate::watchdog::run_tests;

/// How a step that did not fail ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// Passed with a part left out, which the summary must not hide.
    PassedExcept(&'static str),
}

/// A named piece of work.
pub(crate) struct Step {
    name: &'static str,
    work: Box<dyn FnOnce() -> Result<Outcome, Failure>>,
}

impl Step {
    pub(crate) fn new(
        name: &'static str,
        work: impl FnOnce() -> Result<Outcome, Failure> + 'static,
    ) -> Self {
        Self { name, work: Box::new(work) }
    }

    pub(crate) fn command(name: &'static str, mut command: Command) -> Self {
        Self::new(name, move || run(&mut command).map(|()| Outcome::Passed))
    }

    /// A command that runs tests, which may hang.
    pub(crate) fn tests(name: &'static str, mut command: Command) -> Self {
        Self::new(name, move || run_tests(&mut command).map(|()| Outcome::Passed))
    }
}

/// Runs the steps in order, then prints one line with the duration of every step that ran.
pub(crate) fn run_steps(title: &str, steps: Vec<Step>) -> Result<(), Failure> {
    let mut summary = Vec::new();
    let result = steps.into_iter().try_for_each(|step| timed(step, &mut summary));
    println!("{title}: {}", summary.join(", "));
    result
}

#[expect(clippy::disallowed_methods, reason = "a real duration is measured, nothing is decided")]
fn timed(step: Step, summary: &mut Vec<String>) -> Result<(), Failure> {
    let Step { name, work } = step;
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    summary.push(match &result {
        Ok(Outcome::Passed) => format!("{name} {seconds:.1} s"),
        Ok(Outcome::PassedExcept(omission)) => format!("{name} {seconds:.1} s ({omission})"),
        Err(_) => format!("{name} FAILED after {seconds:.1} s"),
    });
    match result {
        Ok(_) => Ok(()),
        Err(Failure::Check(message)) => Err(Failure::Check(format!("{name}: {message}"))),
        Err(usage) => Err(usage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing() -> Step {
        Step::new("clippy", || Err(Failure::Check("it failed".to_owned())))
    }

    #[test]
    fn nothing_runs_after_a_failed_step() {
        let never = Step::new("test", || panic!("must not run"));
        let result = run_steps("demo", vec![failing(), never]);
        assert!(matches!(result, Err(Failure::Check(message)) if message == "clippy: it failed"));
    }

    #[test]
    fn the_summary_shows_failures_and_omissions() {
        let mut summary = Vec::new();
        let partial = Step::new("audit", || Ok(Outcome::PassedExcept("half of it")));
        assert!(timed(partial, &mut summary).is_ok());
        assert!(timed(failing(), &mut summary).is_err());
        assert_eq!(summary, ["audit 0.0 s (half of it)", "clippy FAILED after 0.0 s"]);
    }
}
