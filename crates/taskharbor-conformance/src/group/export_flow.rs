//! Flows, out of one store and into another.

use taskharbor_core::{
    Admin, NewJob, State, Text,
    admin::{Action, Requeue},
    error::Rejected,
    export::{Damage, EdgeState, ExportUnit, ExportedFlow, ExportedJob, ImportRefused, Imported},
    job::{FailurePolicy, JobSet, JoinReading},
    life::{Finish, Life, Stage},
    name::FlowName,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, T0, ack, ack_with, at, child, done_with, expand, fail, failure_job, id, ids, job,
        job_in, join, key, list, requeue,
    },
};

use Imported::{Existing, Stored};

use super::{
    export::{assert_same, firsts, lease, made_by_hand, moved, single_jobs, used},
    import::assert_damaged,
};

group! {
    export_flow {}
    flows {
        a_store_with_everything_is_exported_and_imported_unchanged ["MOV-1" "MOV-2"]
        a_flow_is_exported_at_the_position_of_its_first_member ["MOV-1"]
        flows_made_by_hand_are_stored_as_they_are ["MOV-2"]
        a_unit_of_which_some_jobs_are_stored_is_refused ["MOV-5" "MOV-3"]
        flows_that_contradict_themselves_are_refused ["MOV-6" "MOV-3"]
        imported_dependants_are_unblocked ["MOV-7" "FLO-1"]
        an_imported_expansion_goes_on ["MOV-7" "EXP-2"]
        imported_failure_jobs_go_on ["MOV-7" "FAI-1" "FAI-2" "FAI-7"]
        an_imported_spent_edge_is_read_as_it_was ["MOV-7" "OUT-1"]
        an_imported_flow_is_cancelled_pruned_and_purged ["MOV-7" "CAN-7" "ADM-8"]
        an_imported_detached_job_reads_its_parents ["MOV-7" "REQ-6"]
    }
}

/// Flows with every kind of member, edge and policy.
async fn flows(t: &DriverUnderTest) {
    let name = FlowName::new("nightly").expect("a valid name");
    let mut members = Vec::new();
    for policy in FailurePolicy::ALL.iter().copied() {
        let text = format!("{policy:?}");
        members.push(job_in("flows", &text).on_failure(policy).run_at(at(1)));
        members.push(failure_job(&format!("failure of {text}"), &[&text]));
    }
    let texts: Vec<String> = FailurePolicy::ALL.iter().map(|it| format!("{it:?}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for (reading, text) in JoinReading::ALL.iter().copied().zip(texts.iter().cycle()) {
        members.push(join(&format!("{reading:?}"), &[text]).read_as(reading));
    }
    let readings: Vec<String> = JoinReading::ALL.iter().map(|it| format!("{it:?}")).collect();
    let mut parents: Vec<&str> = readings.iter().map(String::as_str).collect();
    parents.extend(&texts);
    members.push(child("nightly end", &parents).idempotency_key(key("flow")));
    t.enqueue_set(JobSet::named_flow(name, members), T0).await.expect("not rejected");
    let leased = t.reserve(&[("flows", 4)], at(1), LEASE).await.expect("reserve").jobs;
    assert_eq!(leased.len(), 4);
    t.apply(&leased[0], fail(at(2)), at(2)).await;
    t.apply(&leased[3], fail(at(2)), at(2)).await;
    t.apply(&leased[1], ack_with("output"), at(3)).await;
    // Expansions of a plain job and of a member.
    t.put(job_in("e", "plain"), T0).await;
    let leased = t.take_from("e", T0).await.expect("a grant");
    t.apply(&leased, expand([job_in("e", "x"), job_in("e", "y").after(ids(&["x"]))]), T0).await;
    t.put_flow([job_in("m", "member"), job_in("m", "behind").after(ids(&["member"]))], T0).await;
    let leased = t.take_from("m", T0).await.expect("a grant");
    t.apply(&leased, expand([job_in("m", "z"), failure_job("of z", &["z"])]), T0).await;
    // A detached member, of a flow that was over.
    let first = job_in("d", "detached").on_failure(FailurePolicy::Continue);
    t.put_flow([first, job_in("d", "over").after(ids(&["detached"]))], T0).await;
    let leased = t.take_from("d", T0).await.expect("a grant");
    t.apply(&leased, fail(T0), T0).await;
    let leased = t.take_from("d", T0).await.expect("a grant");
    t.apply(&leased, ack_with("over"), T0).await;
    t.act("detached", Action::Requeue(Requeue::new().detach()), at(1)).await;
    t.put(job("last"), T0).await;
}

async fn a_store_with_everything_is_exported_and_imported_unchanged(t: DriverUnderTest) {
    single_jobs(&t).await;
    flows(&t).await;
    let other = moved(&t).await;
    for limit in [1, 3] {
        assert_same(&other.export(limit).await, &t.export(1_000).await);
    }
    // A store that has it from another one hands it on.
    moved(&other).await;
    for text in ["nightly end", "plain", "over", "behind"] {
        assert_eq!(other.flow(text, at(200)).await, t.flow(text, at(200)).await);
    }
    for record in t.snapshot(at(200)).await.records {
        assert_eq!(other.record(record.job.id.as_str(), at(200)).await, record);
    }
}

async fn a_flow_is_exported_at_the_position_of_its_first_member(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.put(job("between"), T0).await;
    t.put_flow([child("end", &["a"]), job("a")], T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), T0).await;
    t.put(job("last"), T0).await;
    let units = t.export(10).await;
    assert_eq!(firsts(&units), ["g", "between", "end", "last"]);
    let members: Vec<_> = units[0].jobs.iter().map(|job| job.new.id.as_str()).collect();
    assert_eq!(members, ["g", "x", "y"]);
    assert_eq!(units[0].flow, Some(ExportedFlow::new(id("g"), None, T0, id("y"))));
    assert_same(&t.export(1).await, &units);
    moved(&t).await;
}

/// A flow of hand-made members: every kind of edge and of blocked, failed and expanded member.
fn flow_by_hand() -> ExportUnit {
    let flow = id("end");
    let member = |new: NewJob, mut life: Life, edges| {
        life.flow = Some(flow.clone());
        ExportedJob::new(new, at(5), life, edges, false)
    };
    let finished = |state, by| used(Stage::Finished(Finish::new(state, at(8), by)));
    let spent =
        |state, reason: Option<&str>| EdgeState::Spent { state, reason: reason.map(Text::new) };
    let blocked = |pending| {
        let mut life = used(Stage::Blocked);
        life.pending = pending;
        life
    };
    let mut expanded = finished(State::Done, Some(lease(at(60))));
    (expanded.expanded_into, expanded.output) = (Some(id("tail of expanded")), None);
    let not_needed = finished(State::Cancelled, None);
    let mut end = member(
        child("end", &["dlq", "join", "open"]).idempotency_key(key("of the flow")),
        blocked(2),
        vec![spent(State::Dlq, None), EdgeState::Open, EdgeState::Open],
    );
    end.holds_key = true;
    let members = vec![
        member(job("dlq").on_failure(FailurePolicy::Continue), finished(State::Dlq, None), vec![]),
        member(job("expanded"), expanded, vec![]),
        member(
            job("tail of expanded").on_failure(FailurePolicy::FailFast),
            used(Stage::Waiting),
            vec![],
        ),
        member(
            join("join", &["dlq", "tail of expanded"]).read_as(JoinReading::Gather),
            blocked(1),
            vec![spent(State::Dlq, Some("another reason")), EdgeState::Open],
        ),
        member(
            child("open", &["dlq", "left long ago"]),
            used(Stage::Waiting),
            vec![spent(State::Cancelled, Some("")), EdgeState::Closed],
        ),
        member(failure_job("f", &["tail of expanded"]), blocked(1), vec![EdgeState::Open]),
        member(failure_job("g", &["expanded"]), not_needed, vec![EdgeState::Closed]),
        end,
    ];
    let name = FlowName::new("by hand").expect("a valid name");
    ExportUnit::flow(ExportedFlow::new(flow.clone(), Some(name), at(4), flow.clone()), members)
}

async fn flows_made_by_hand_are_stored_as_they_are(t: DriverUnderTest) {
    let mut units = made_by_hand();
    units.push(flow_by_hand());
    // Keys come last.
    let at = units.len() - 2;
    units.swap(at, at + 1);
    assert_eq!(t.import(units.clone()).await, vec![Ok(Stored); units.len()]);
    assert_same(&t.export(1_000).await, &units);
    moved(&t).await;
    assert_eq!(t.import(units.clone()).await, vec![Ok(Existing); units.len()]);
}

async fn a_unit_of_which_some_jobs_are_stored_is_refused(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), child("c", &["a", "b"])], T0).await;
    t.put(job("d"), T0).await;
    let units = t.export(10).await;
    let other = t.another().await;
    other.put(job("b"), T0).await;
    let stored = other.export(10).await;
    let answers = other.import(units).await;
    assert_eq!(answers, [Err(ImportRefused::Overlap(id("b"))), Ok(Stored)]);
    other.act("d", Action::Cancel, T0).await;
    other.act("d", Action::Purge, T0).await;
    assert_same(&other.export(10).await, &stored);
}

async fn flows_that_contradict_themselves_are_refused(t: DriverUnderTest) {
    let other = t.another().await;
    other.put_flow([job("a"), child("b", &["a"]), child("c", &["b"])], T0).await;
    let unit = other.export(10).await.remove(0);
    let with = |change: &dyn Fn(&mut ExportUnit)| {
        let mut unit = unit.clone();
        change(&mut unit);
        unit
    };
    let waits_for = |job: &mut ExportedJob, parent: &str| {
        job.new.parents.push(id(parent));
        job.edges.push(EdgeState::Open);
        job.life.stage = Stage::Blocked;
        job.life.pending += 1;
    };
    let damaged = vec![
        ("too few edges", with(&|unit| unit.jobs[1].edges.clear())),
        ("a wrong count", with(&|unit| unit.jobs[1].life.pending = 2)),
        ("a count of zero", with(&|unit| unit.jobs[1].life.pending = 0)),
        ("an unknown parent", with(&|unit| unit.jobs[1].new.parents = ids(&["ghost"]))),
        ("a cycle", with(&|unit| waits_for(&mut unit.jobs[0], "c"))),
        ("a job that waits for itself", with(&|unit| waits_for(&mut unit.jobs[0], "a"))),
        ("no tail", with(&|unit| unit.flow.as_mut().expect("a flow").tail = id("ghost"))),
        ("another flow", with(&|unit| unit.jobs[0].life.flow = Some(id("other")))),
        ("a member without a flow", with(&|unit| unit.jobs[2].life.flow = None)),
        ("no flow at all", with(&|unit| unit.flow = None)),
        ("no members", with(&|unit| unit.jobs.clear())),
        ("a key held that it does not have", with(&|unit| unit.jobs[2].holds_key = true)),
        (
            "one id twice",
            with(&|unit| {
                let twin = unit.jobs[0].clone();
                unit.jobs.push(twin);
            }),
        ),
        (
            "a job that waits for a failure job",
            with(&|unit| {
                unit.jobs[1].new.condition = taskharbor_core::job::Condition::ParentsFailed;
            }),
        ),
    ];
    let cycle = &damaged[4].1.check(&taskharbor_core::Driver::limits(&t.driver));
    assert!(matches!(cycle, Err(Damage::Job(Rejected::Cycle { .. }))), "{cycle:?}");
    assert_damaged(&t, damaged).await;
}

async fn imported_dependants_are_unblocked(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), join("j", &["a", "b"]), child("end", &["j"])];
    t.put_flow(jobs, T0).await;
    let leased = t.take_many(2, T0).await;
    t.apply(&leased[0], ack_with("a"), T0).await;
    let other = moved(&t).await;
    other.apply(&leased[1], ack_with("b"), T0).await;
    other.run("end", ack(), T0).await;
    let expected = [list(1), list(2), done_with("a"), done_with("b")];
    assert_eq!(other.inputs("end").await, expected);
    assert_eq!(other.flow("end", T0).await.members.done, 4);
}

async fn an_imported_expansion_goes_on(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), T0).await;
    t.run("x", ack(), T0).await;
    t.put(job("plain").priority(1), T0).await;
    t.run("plain", expand([job("z")]), T0).await;
    let other = moved(&t).await;
    other.run("y", ack_with("y"), T0).await;
    other.run("end", ack(), T0).await;
    assert_eq!(other.inputs("end").await, [list(1), done_with("y")]);
    assert_eq!(other.output("g").await, [done_with("y")]);
    other.run("z", expand([job("zz")]), T0).await;
    other.run("zz", ack_with("zz"), T0).await;
    assert_eq!(other.output("plain").await, [done_with("zz")]);
    assert_eq!(other.flow("plain", T0).await.tail, id("zz"));
}

async fn imported_failure_jobs_go_on(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), job("c"), child("end", &["a", "b", "c"])];
    let handlers = ["a", "b", "c"].map(|text| failure_job(&format!("f{text}"), &[text]));
    t.put_flow(jobs.into_iter().chain(handlers), T0).await;
    t.run("a", ack(), T0).await;
    let other = moved(&t).await;
    assert_eq!(
        other.manage("fa", requeue(), T0).await,
        Err(taskharbor_core::error::Denied::FlowOver)
    );
    other.run("b", fail(T0), T0).await;
    other.run("c", ack(), T0).await;
    let states = other.states(&["fa", "fb", "fc"], T0).await;
    assert_eq!(states, [State::Cancelled, State::Ready, State::Cancelled]);
}

async fn an_imported_spent_edge_is_read_as_it_was(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Continue);
    t.put_flow([a, child("end", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    let read = t.inputs("end").await;
    let other = moved(&t).await;
    other.act("a", requeue(), T0).await;
    assert_eq!(other.take_order(T0).await, ["a", "end"]);
    assert_eq!(other.inputs("end").await, read);
}

async fn an_imported_flow_is_cancelled_pruned_and_purged(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.put_flow([job("c"), child("d", &["c"])], T0).await;
    let other = moved(&t).await;
    for tail in ["b", "d"] {
        assert_eq!(other.act(tail, Action::CancelFlow, T0).await, State::Cancelled);
    }
    assert_eq!(other.act("b", Action::PurgeFlow, T0).await, State::Cancelled);
    let request = taskharbor_core::admin::Prune::new(10, T0).cancelled_before(T0);
    assert_eq!(other.driver.prune(request).await.expect("prune"), 2);
    assert_eq!(other.export(10).await, []);
    assert!(other.put_flow([job("a"), child("b", &["a"])], T0).await[0].is_new());
}

async fn an_imported_detached_job_reads_its_parents(t: DriverUnderTest) {
    // The detached job comes before the flow that its parent is in.
    let x = child("x", &["p"]);
    t.put_flow([x, job("p"), child("end", &["p", "x"]).on_failure(FailurePolicy::Block)], T0).await;
    t.run("p", ack_with("p"), T0).await;
    t.run("x", fail(T0), T0).await;
    t.act("end", Action::Cancel, T0).await;
    t.act("x", Action::Requeue(Requeue::new().detach()), T0).await;
    let units = t.export(10).await;
    assert_eq!(firsts(&units), ["x", "p"]);
    let other = moved(&t).await;
    other.take_the("x", T0).await;
    assert_eq!(other.inputs("x").await, [list(1), done_with("p")]);
}
