// What the worker uses of Node, so that the package compiles without the types of Node.

declare module "node:http" {
  export interface Socket {
    readonly connecting: boolean;
    end(): void;
  }
  export interface IncomingMessage {
    readonly statusCode?: number;
    setEncoding(encoding: "utf8"): void;
    on(event: "data", listener: (part: string) => void): void;
    on(event: "end" | "close", listener: () => void): void;
    on(event: "error", listener: (error: Error) => void): void;
  }
  export interface ClientRequest {
    readonly socket: Socket | null;
    readonly reusedSocket: boolean;
    on(event: "error", listener: (error: Error & { code?: string }) => void): void;
    on(event: "close", listener: () => void): void;
    end(body: string): void;
    destroy(error?: Error): void;
  }
  export interface RequestOptions {
    method: string;
    headers: Record<string, string>;
    agent: Agent;
  }
  export class Agent {
    constructor(options: { keepAlive: boolean });
    destroy(): void;
  }
  export function request(
    url: string,
    options: RequestOptions,
    listener: (response: IncomingMessage) => void,
  ): ClientRequest;
  const http: { request: typeof request; Agent: typeof Agent };
  export default http;
}

declare module "node:https" {
  import http from "node:http";
  export default http;
}

declare module "node:os" {
  export function hostname(): string;
}

declare module "node:crypto" {
  export function randomBytes(count: number): { toString(encoding: "hex"): string };
}

declare module "node:process" {
  const process: {
    readonly pid: number;
    on(event: "SIGINT" | "SIGTERM", listener: () => void): void;
    off(event: "SIGINT" | "SIGTERM", listener: () => void): void;
    exit(code?: number): never;
  };
  export default process;
}

declare function setImmediate(work: () => void): void;
