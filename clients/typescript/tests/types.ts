// What the compiler has to accept and to refuse. It is compiled and never run.

import { App, Client, JobType, JsonText, type EnqueueOptions, type Inputs, type Job, type Worker } from "taskharbor";
import { Client as OnlyClient, type Enqueued } from "taskharbor/client";

interface Mail {
  to: string;
}

const sendMail = new JobType<Mail, { sent: boolean }>("email:send", { queue: "mail" });
const app = new App("http://127.0.0.1:7450", { queues: { mail: 8 }, timeout: 30, backoff: { base: 1 } });

app.job(sendMail, (job) => ({ sent: job.payload.to !== "" })).job("plain", () => undefined, { maxAttempts: 3 });
app.job(sendMail, async (job: Job<Mail>) => ({ sent: job.signal.aborted }));
app.job("typed", async (job: Job<Mail>) => job.payload.to.length);
app.job<Mail, number>("given", (job) => job.payload.to.length);

// @ts-expect-error: the payload has no such member
app.job(sendMail, (job) => ({ sent: job.payload.from }));
// @ts-expect-error: the output is another one
app.job(sendMail, () => "sent");
// @ts-expect-error: without a type nothing is known of the payload
app.job("untyped", (job) => job.payload.to);
// @ts-expect-error: what was enqueued cannot be changed
app.job(sendMail, (job) => ({ sent: (job.payload = { to: "" }) !== undefined }));
// @ts-expect-error: queues are needed
new App("http://127.0.0.1:7450", {});
// @ts-expect-error: no such option
new App("http://127.0.0.1:7450", { queues: { mail: 1 }, retries: 3 });

const client: OnlyClient = new Client("http://127.0.0.1:7450", { token: "secret" });
const options: EnqueueOptions = { delay: 5 };
const stored: Promise<Enqueued> = client.enqueue(sendMail, { to: "ada" }, options);
void stored;
void client.enqueue(sendMail, new JsonText('{"to":"ada"}'));
void client.enqueue("plain", [1, "two", null]);
void app.enqueue(sendMail, { to: "ada" });
// @ts-expect-error: another payload
void client.enqueue(sendMail, { from: "ada" });
// @ts-expect-error: another payload
void app.enqueue(sendMail, 7);

export async function inputs(job: Job): Promise<Inputs<number[]>> {
  return job.inputs<number[]>();
}

export async function embedded(): Promise<void> {
  const worker: Worker = await app.start();
  await worker.stop();
  // @ts-expect-error: what is inside is not for callers
  worker.begin;
}
