//! The frame of all pages: the first run, live updates, addresses, keys, colours, small screens.

use taskharbor::{AnyDriver, QueueName};
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, Web};

use super::site::{Site, page};

/// Every page, and words that it shows in a store with one queue.
const PAGES: [(&str, &str); 8] = [
    ("overview", "Overview"),
    ("jobs", "Jobs"),
    ("dlq", "DLQ"),
    ("flows", "Flows"),
    ("schedules", "Schedules"),
    ("queues", "Queues"),
    ("workers", "Workers"),
    ("activity", "Activity"),
];

#[tokio::test]
async fn the_first_run_shows_what_to_do_first() {
    let site = Site::open().await;
    let page = page().await;
    page.open(&site.url).await;
    page.wait_for_text("No jobs yet").await;
    page.wait_for_text("taskharbor enqueue").await;
    page.screenshot("first-run").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn the_overview_moves_by_itself() {
    let site = Site::open().await;
    let page = site.visit("overview").await;
    page.wait_for_text("No jobs yet").await;
    page.wait_for_text("Live").await;
    site.enqueue("mail", "email:send", 3).await;
    page.wait_for("document.querySelector('td[data-label=Ready]')?.innerText === '3'").await;
    site.reserve("mail").await.unwrap();
    page.wait_for("document.querySelector('td[data-label=Ready]')?.innerText === '2'").await;
    page.wait_for("document.querySelector('td[data-label=\"In flight\"]')?.innerText === '1'")
        .await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn live_updates_can_be_paused() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 1).await;
    let page = site.visit("overview").await;
    page.wait_for_text("Live").await;
    page.press("p").await;
    page.wait_for_text("Paused").await;
    page.press("p").await;
    page.wait_for_text("Live").await;
    site.enqueue("mail", "email:send", 1).await;
    page.wait_for("document.querySelector('td[data-label=Ready]')?.innerText === '2'").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_page_that_asks_by_itself_stops_when_it_is_paused() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 1).await;
    let page = site.visit("overview").await;
    page.wait_for_text("Live").await;
    // Events do not get through, and requests for the overview wait.
    let twist = "(() => {
        window.EventSource = class extends EventTarget {
            constructor() { super(); setTimeout(() => this.dispatchEvent(new Event('error'))); }
            close() {}
        };
        const real = window.fetch;
        const gate = new Promise((open) => { window.openGate = open; });
        window.fetch = async (url, init) => {
            if (!`${url}`.endsWith('/overview')) return real(url, init);
            window.asked = (window.asked ?? 0) + 1;
            await gate;
            const answer = await real(url, init);
            window.answered = (window.answered ?? 0) + 1;
            return answer;
        };
    })()";
    page.eval(twist).await;
    page.press("p").await;
    page.wait_for_text("Paused").await;
    page.press("p").await;
    page.wait_for("window.asked === 1").await;
    page.press("p").await;
    page.wait_for_text("Paused").await;
    page.eval("window.openGate()").await;
    page.wait_for("window.answered === 1").await;
    // A turn of the page's own loop, in which the answer would be taken.
    page.eval("new Promise((done) => setTimeout(done, 100))").await;
    let status = page.eval("document.querySelector('.status').innerText").await;
    assert_eq!(status, "Paused");
    page.press("p").await;
    page.wait_for_text("Every 5 s").await;
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed_from_the_overview() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 1).await;
    let page = site.visit("overview").await;
    page.click("main td.end button").await;
    page.wait_for_text("Queue mail is paused").await;
    assert!(site.reserve("mail").await.is_none());
    page.wait_for("document.querySelector('main td.end button').innerText === 'Resume'").await;
    page.click("main td.end button").await;
    page.wait_for_text("Queue mail is resumed").await;
    assert!(site.reserve("mail").await.is_some());
    page.assert_no_complaints();
}

#[tokio::test]
async fn every_page_has_an_address_that_survives_a_reload() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 2).await;
    let page = site.visit("overview").await;
    for (place, title) in PAGES {
        page.open(&format!("{}#/main/{place}", site.url)).await;
        let heading = format!("document.querySelector('h1')?.innerText.startsWith('{title}')");
        page.wait_for(&heading).await;
        page.reload().await;
        page.wait_for(&heading).await;
        page.wait_for("!document.querySelector('[aria-busy=true]')").await;
        assert!(!page.text().await.contains("Something failed"), "{place}");
    }
    page.open(&format!("{}#/main/no-such-page", site.url)).await;
    page.wait_for_text("No such page").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn pages_are_reached_by_keys_and_a_field_takes_them_as_text() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 1).await;
    let page = site.visit("overview").await;
    page.wait_for_text("mail").await;
    page.press("g").await;
    page.press("j").await;
    page.wait_for("document.querySelector('h1')?.innerText === 'Jobs'").await;
    page.wait_for_element("main tbody tr").await;
    page.press("/").await;
    page.wait_for("document.activeElement.matches('[data-filter]')").await;
    page.press("g").await;
    page.press("o").await;
    page.wait_for("document.activeElement.value === 'go'").await;
    page.press("Escape").await;
    page.wait_for("document.activeElement === document.body").await;
    page.press("?").await;
    page.wait_for_text("next, previous row").await;
    page.press("Escape").await;
    page.wait_for("!document.querySelector('dialog')").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_list_is_walked_with_the_arrows() {
    let site = Site::open().await;
    let ids = site.enqueue("mail", "email:send", 3).await;
    let page = site.visit("jobs").await;
    page.wait_for("document.querySelectorAll('main tbody tr').length === 3").await;
    page.press("ArrowDown").await;
    page.press("ArrowDown").await;
    page.press("x").await;
    page.wait_for_text("1 job selected").await;
    page.press("Enter").await;
    // The newest job is the first row.
    page.wait_for(&format!("location.hash.endsWith('{}')", ids[1])).await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn light_and_dark_follow_the_system_until_the_person_chooses() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 4).await;
    let page = page().await;
    let background = "getComputedStyle(document.body).backgroundColor";
    page.prefer("light").await;
    page.open(&format!("{}#/main/overview", site.url)).await;
    page.wait_for_text("mail").await;
    let light = page.eval(background).await;
    page.prefer("dark").await;
    page.wait_for(&format!("{background} !== {light}")).await;
    let dark = page.eval(background).await;
    page.screenshot("overview-dark").await;
    page.press("t").await;
    page.wait_for(&format!("{background} === {light}")).await;
    page.reload().await;
    page.wait_for(&format!("{background} === {light}")).await;
    assert_ne!(light, dark);
    page.assert_no_complaints();
}

#[tokio::test]
async fn no_page_is_wider_than_a_phone() {
    let site = Site::open().await;
    site.enqueue("a-queue-with-a-rather-long-name", "billing:invoice:send-reminder", 30).await;
    site.fail_all("a-queue-with-a-rather-long-name", "card {n} was declined by the issuing bank")
        .await;
    let ids = site.enqueue("a-queue-with-a-rather-long-name", "email:send", 3).await;
    let page = page().await;
    page.resize(360, 740).await;
    let job = format!("jobs/{}", ids[0]);
    for place in PAGES.iter().map(|(place, _)| *place).chain([job.as_str()]) {
        page.open(&format!("{}#/main/{place}", site.url)).await;
        page.wait_for("document.querySelector('h1')").await;
        page.wait_for("!document.querySelector('[aria-busy=true]')").await;
        let wide = page.eval("document.documentElement.scrollWidth").await;
        assert_eq!(wide, 360, "{place}");
    }
    page.open(&format!("{}#/main/overview", site.url)).await;
    page.wait_for_text("a-queue").await;
    page.screenshot("overview-phone").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn stores_are_chosen_by_name() {
    let (live, test) = (AnyDriver::new(MemoryDriver::new()), AnyDriver::new(MemoryDriver::new()));
    for (driver, queue) in [(&live, "mail-live"), (&test, "mail-test")] {
        let now = driver.now().await.unwrap();
        driver.pause(QueueName::new(queue).unwrap(), now).await.unwrap();
    }
    let stores = Stores::new().add("live", StoreKind::Postgres, &live).unwrap();
    let stores = stores.add("test", StoreKind::Memory, &test).unwrap();
    let web = Web::new().anonymous(Access::new("test", Role::Viewer));
    let url = super::site::serve_stores(stores, web).await;
    let page = page().await;
    page.open(&url).await;
    page.wait_for_text("mail-live").await;
    page.choose(".stores select", "test").await;
    page.wait_for_text("mail-test").await;
    assert!(!page.text().await.contains("mail-live"));
    page.reload().await;
    page.wait_for_text("mail-test").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn it_works_under_any_prefix() {
    let driver = AnyDriver::new(MemoryDriver::new());
    let now = driver.now().await.unwrap();
    driver.pause(QueueName::new("mail").unwrap(), now).await.unwrap();
    let stores = Stores::new().add("main", StoreKind::Memory, &driver).unwrap();
    let web = Web::new().anonymous(Access::new("test", Role::Viewer));
    let app = axum::Router::new().nest_service("/ops/jobs", taskharbor_web::router(stores, web));
    let url = super::site::serve_router(app).await;
    let page = page().await;
    page.open(&format!("{url}ops/jobs/")).await;
    page.wait_for_text("mail").await;
    page.wait_for_text("Live").await;
    page.assert_no_complaints();
}

/// Renders a component that watches one entry and then another, which changes only afterwards.
const WATCHES_ANOTHER: &str = r#"(async () => {
    const [{ html, render, useState }, { Store, useStore }] =
        await Promise.all([import("./html.js"), import("./store.js")]);
    const store = new Store({ first: "one" });
    let turnTo;
    function Watching() {
        const [key, setKey] = useState("first");
        turnTo = setKey;
        return html`<p id="watching">${useStore(store, (value) => value[key]) ?? "nothing"}</p>`;
    }
    const place = document.createElement("div");
    document.body.append(place);
    render(html`<${Watching} />`, place);
    const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const texts = [];
    for (const step of [() => {}, () => turnTo("second"), () => store.patch({ second: "two" })]) {
        step();
        await drawn();
        await drawn();
        texts.push(document.getElementById("watching").innerText);
    }
    return texts.join(", ");
})()"#;

#[tokio::test]
async fn a_component_sees_a_change_of_what_it_watches_since_its_last_rendering() {
    let site = Site::open().await;
    let page = page().await;
    page.open(&site.url).await;
    assert_eq!(page.eval(WATCHES_ANOTHER).await, "one, nothing, two");
}
