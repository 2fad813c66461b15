//! Random scripts, held against the model.

use crate::{driver_under_test::DriverUnderTest, script};

group! {
    model {
        random_scripts_go_as_they_do_in_the_model
            ["TIM-1" "ENQ-2" "ORD-1" "RES-7" "REF-1" "REF-2" "ADM-2" "ADM-10"
             "LAN-2" "LAN-6" "LIM-1" "LIM-4" "LIM-8" "RAT-1" "RAT-3" "RAT-4"
             "WRK-1" "WRK-2" "EVI-1" "EVI-2" "EVI-4"]
    }
    flows {}
}

async fn random_scripts_go_as_they_do_in_the_model(t: DriverUnderTest) {
    script::run(&t.driver, &t.open, 1_000).await;
}
