//! Random scripts, held against the model.

use crate::{script, trial::Trial};

pub(crate) async fn random_scripts_go_as_they_do_in_the_model(t: Trial) {
    script::run(&t.driver, &t.open, 200).await;
}
