//! Pictures of flows.

use serde::{Deserialize, Serialize};
use taskharbor::{
    Context, Failure, Flow, FlowTree, Handlers, Job, JobKind, JobResult, JoinReading, Options,
    testing::Harbor,
};

use super::{Add, Echo, Give, Pair, Write, gives, handlers};

/// Expands into a chain.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "grow", output = i64)]
struct Grow;

async fn grow(_: Grow, _: Context) -> JobResult<Flow<i64>> {
    Ok(Flow::first(Give(1)).then(Add(1)))
}

/// Expands into a job that expands.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "grow twice", output = i64)]
struct GrowTwice;

async fn grow_twice(_: GrowTwice, _: Context) -> JobResult<Flow<i64>> {
    Ok(Flow::first(Grow).then(Add(1)))
}

#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "undo", input = Failure)]
struct Undo;

async fn undo(_: Undo, _: Context) -> JobResult {
    Ok(())
}

/// The tree of a flow that ran as far as it can, without its first line, which has an id and a time.
async fn tree<O>(flow: Flow<O>) -> (FlowTree, String) {
    let harbor = Harbor::new(handlers().on(grow).on(grow_twice).on(undo));
    let handle = harbor.client().start(flow).name("drawn").await.unwrap();
    harbor.run_until_idle().await;
    let tree = handle.tree(1_000).await.unwrap();
    let text = tree.to_string();
    let lines: Vec<_> = text.lines().skip(1).map(|line| line.replace(" in 0ns", "")).collect();
    (tree, lines.join("\n"))
}

#[tokio::test(start_paused = true)]
async fn a_chain_is_one_line_after_another() {
    let (tree, text) =
        tree(Flow::first(Give(1)).then(Add(2).with(Options::new().label("two")))).await;
    assert_eq!(text, "give  done\nadd [two]  done");
    assert!(tree.is_complete);
    assert_eq!(tree.members[1].label.as_deref(), Some("two"));
    assert_eq!(tree.members[1].output.as_deref(), Some(&b"3"[..]));
    assert!(tree.to_string().contains("\"drawn\": done (2 done) in 0ns"), "{tree}");
}

#[tokio::test(start_paused = true)]
async fn members_of_a_group_stand_below_it() {
    let flow = Flow::first(Give(1)).then(Flow::group([Add(1), Add(2)]).label("sizes")).then(Write);
    let (_, text) = tree(flow).await;
    assert_eq!(text, "give  done\nall of 2 [sizes]  done\n├─ add  done\n└─ add  done\nwrite  done");
}

#[tokio::test(start_paused = true)]
async fn groups_in_groups_and_chains_in_them_are_indented() {
    let chain = |n| Flow::first(Add(n)).then(Flow::group([Add(1), Add(2)])).then(Write);
    let flow = Flow::first(Give(1)).then(Flow::join(Add(0), chain(5))).then(Pair);
    let (_, text) = tree(flow).await;
    let expected = "\
give  done
all of 2  done
├─ add  done
└─ add  done
   all of 2  done
   ├─ add  done
   └─ add  done
   write  done
pair  done";
    assert_eq!(text, expected);
}

#[tokio::test(start_paused = true)]
async fn failures_are_shown_and_large_groups_cut() {
    let flow = Flow::chord(gives((0..30).map(|n| 5 - n)), Write);
    let (_, text) = tree(flow).await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 23, "{text}");
    assert_eq!(lines[0], "all of 30  blocked");
    assert_eq!(lines[7], "├─ give  dlq, failed once: -1 is negative");
    assert_eq!(lines[21], "└─ … and 10 more (10 dlq)");
    assert_eq!(lines[22], "write  blocked");
}

#[tokio::test(start_paused = true)]
async fn an_expanded_job_stands_before_its_expansion() {
    let (_, text) = tree(Flow::first(Grow).then(Add(1))).await;
    assert_eq!(text, "grow  done, expanded\ngive  done\nadd  done\nadd  done");
    let (_, text) = tree(Flow::first(GrowTwice)).await;
    let expected =
        "grow twice  done, expanded\ngrow  done, expanded\ngive  done\nadd  done\nadd  done";
    assert_eq!(text, expected);
}

#[tokio::test(start_paused = true)]
async fn a_failure_job_is_shown_beside_what_it_watches() {
    let (tree, text) = tree(Flow::first(Give(-1)).then(Add(1)).on_failure(Undo)).await;
    assert!(text.starts_with("give  dlq, failed once: -1 is negative\nadd  cancelled"), "{text}");
    assert!(text.ends_with("\non failure: undo  done"), "{text}");
    let failure_job = tree.members.iter().position(taskharbor::FlowMember::is_failure_job).unwrap();
    let watched = tree.members.iter().position(|it| it.job_type.as_str() == "add").unwrap();
    let (dot, mermaid) = (tree.graphviz(), tree.mermaid());
    assert!(
        dot.contains(&format!(
            "n{watched} -> n{failure_job} [style=dotted, label=\"on failure\"];"
        )),
        "{dot}"
    );
    let edge = format!("n{watched} -. on failure .-> n{failure_job}\n");
    assert!(mermaid.contains(&edge), "{mermaid}");
}

#[tokio::test(start_paused = true)]
async fn a_flow_with_more_members_than_are_read_says_so() {
    let harbor = Harbor::new(Handlers::new());
    let handle = harbor.client().start(Flow::chord(gives(0..10), Write)).await.unwrap();
    let tree = handle.tree(4).await.unwrap();
    assert!(!tree.is_complete);
    assert_eq!(tree.members.len(), 4);
    let text = tree.to_string();
    let expected = "\
all of 10  blocked
├─ give  ready
├─ give  ready
└─ … and 8 more
write  blocked
";
    assert_eq!(text.split_once('\n').unwrap().1, expected);
    assert!(tree.graphviz().contains("m2 [label=\"… and 8 more\", style=dashed];\n  m2 -> n2;"));
    assert!(tree.mermaid().contains("m2([\"… and 8 more\"]) --> n2\n"));
    assert!(handle.tree(12).await.unwrap().is_complete);
    assert_eq!(handle.tree(0).await.unwrap().members, []);
}

#[tokio::test(start_paused = true)]
async fn a_large_flow_is_read_from_its_end_so_that_the_tree_stands() {
    let harbor = Harbor::new(handlers().on(grow));
    let groups = (0..30).map(|_| Flow::group(gives(0..40)));
    let handle = harbor.client().start(Flow::group(groups).then(Echo)).await.unwrap();
    let tree = handle.tree(200).await.unwrap();
    assert_eq!((tree.members.len(), tree.is_complete), (200, false));
    let text = tree.to_string();
    let lines: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(lines[..3], ["all of 30  blocked", "├─ all of 40  blocked", "│  ├─ give  ready"]);
    assert!(lines.contains(&"└─ … and 10 more") && lines.contains(&"echo  blocked"), "{text}");
    // A chain is shown at both its ends.
    let chain = Flow::chain((0..50).map(|n| Flow::first(Add(n))));
    let handle = harbor.client().start(Flow::first(Grow).then(chain)).await.unwrap();
    let text = handle.tree(8).await.unwrap().to_string();
    let lines: Vec<_> = text.lines().skip(1).collect();
    let (end, start) = (["add  blocked"; 6], ["grow  ready", "add  blocked"]);
    assert_eq!(lines, [&["…"][..], &end, &start, &["… and 42 more members"]].concat());
}

#[tokio::test(start_paused = true)]
async fn graphviz_and_mermaid_have_every_member_and_edge() {
    let odd = Give(1).with(Options::new().label("a \"b\" <c> \\ #1"));
    let (tree, _) = tree(Flow::chord([odd, Give(2).with(Options::new())], Write)).await;
    let dot = tree.graphviz();
    assert!(dot.starts_with("digraph flow {"), "{dot}");
    assert!(dot.contains(r#"n0 [label="give [a \"b\" <c> \\ #1]\ndone""#), "{dot}");
    let mermaid = tree.mermaid();
    assert!(
        mermaid.contains("n0[\"give [a #34;b#34; #60;c#62; #92; #35;1]<br/>done\"]:::done"),
        "{mermaid}"
    );
    for (from, to) in [(0, 2), (1, 2), (2, 3)] {
        assert!(dot.contains(&format!("n{from} -> n{to};")), "{dot}");
        assert!(mermaid.contains(&format!("n{from} --> n{to}\n")), "{mermaid}");
    }
    assert_eq!(tree.members[2].kind, JobKind::Join(JoinReading::List));
}

#[tokio::test(start_paused = true)]
async fn failure_jobs_in_the_middle_leave_the_picture_whole() {
    let part = Flow::group([Add(1), Add(2)]).on_failure(Undo);
    let (_, text) = tree(Flow::first(Give(1)).on_failure(Undo).then(part).then(Write)).await;
    let lines: Vec<_> = text.lines().map(|line| line.split(':').take(2).collect()).collect();
    let expected: [String; 7] = [
        "give  done",
        "on failure: undo  cancelled",
        "all of 2  done",
        "├─ add  done",
        "└─ add  done",
        "on failure: undo  cancelled",
        "write  done",
    ]
    .map(|line| line.replacen(": ", " ", 1));
    let lines: Vec<String> = lines.into_iter().map(|parts: Vec<&str>| parts.concat()).collect();
    assert_eq!(lines, expected, "{text}");
}
