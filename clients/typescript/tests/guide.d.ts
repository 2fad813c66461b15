// What the snippets of the guide take as given.

declare const app: import("taskharbor").App;
declare const server: { on(event: "close", listener: () => void): void };
declare const process: { env: Record<string, string | undefined> };
declare function placeOrder(order: unknown): Promise<number>;
declare function writeRow(row: number): Promise<void>;

declare module "express" {
  interface Response {
    status(code: number): Response;
    json(body: unknown): void;
  }
  type Handler = (request: { params: Record<string, string> }, response: Response) => Promise<void>;
  export default function express(): { post(path: string, handler: Handler): void };
}
