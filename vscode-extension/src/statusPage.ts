// The engine's status page: a read-only document of what the engine says of itself.
import { commands, Disposable, EventEmitter, Uri, workspace } from "vscode";
import { readJson } from "./commandLine";
import type { Server } from "./server";
import { readSettings, SECTION } from "./settings";
import type { Status } from "./status";
import type { EngineStatus } from "./statusText";

const SCHEME = "dflash-status";
/** The page asks a process of the server's own, so it follows what it shows no closer than this. */
const FOLLOWS_AFTER_MS = 3000;
const PAGE = Uri.from({ scheme: SCHEME, path: "/DFlash Engine.md" });

/** What `dflash-lsp status --json` tells of one engine; any of it may be absent. */
export interface Health {
  readonly state?: string;
  readonly reason?: string;
  readonly target?: string;
  readonly draft?: string;
  readonly device?: string;
  readonly dtype?: string;
  readonly memory?: number | null;
  readonly kind?: string;
  readonly version?: string;
  readonly pid?: number;
}

export class StatusPage implements Disposable {
  private readonly changes = new EventEmitter<Uri>();
  private readonly registered: Disposable;
  private following: NodeJS.Timeout | undefined;

  constructor(
    private readonly server: Server,
    private readonly status: Status,
  ) {
    this.registered = Disposable.from(
      this.changes,
      workspace.registerTextDocumentContentProvider(SCHEME, {
        onDidChange: this.changes.event,
        provideTextDocumentContent: () => this.text(),
      }),
      status.onDidChange(() => this.follow()),
    );
  }

  async open(): Promise<void> {
    this.changes.fire(PAGE);
    await commands.executeCommand("markdown.showPreview", PAGE);
  }

  dispose(): void {
    clearTimeout(this.following);
    this.registered.dispose();
  }

  private follow(): void {
    if (!workspace.textDocuments.some((document) => document.uri.scheme === SCHEME)) return;
    this.following ??= setTimeout(() => {
      this.following = undefined;
      this.changes.fire(PAGE);
    }, FOLLOWS_AFTER_MS);
  }

  private async text(): Promise<string> {
    const { launch, folder } = this.server;
    const { engine } = this.status;
    const counts = await this.server.execute("dflash.counts");
    // A profile of the user's own is known by its path, not by the name that its engine goes by.
    const profile = readSettings(workspace.getConfiguration(SECTION)).profile || engine?.profile;
    let health: Health | undefined;
    if (launch && profile) {
      const found = await readJson(launch, folder, ["status", "--profile", profile]).catch(() => undefined);
      [health] = Object.values((found as { engines?: Record<string, Health> } | undefined)?.engines ?? {});
    }
    return statusPage(this.status.text, engine, health, counts);
  }
}

export function statusPage(
  said: string,
  engine: EngineStatus | undefined,
  health: Health | undefined,
  counts: unknown,
): string {
  const rows: [string, unknown][] = [
    ["state", said],
    ["profile", engine?.profile],
    ["target", health?.target ?? engine?.target],
    ["draft", health?.draft ?? engine?.draft],
    ["acceptance length", engine?.acceptanceLength?.toFixed(2)],
    ["tokens/s", engine?.tokensPerSecond?.toFixed(1)],
    ["device", [health?.device, health?.dtype].filter(Boolean).join(", ")],
    ["memory", health?.memory && `${(health.memory / 1e6).toFixed(0)} MB`],
    ["engine", health?.version && `version ${health.version}, process ${health.pid}`],
  ];
  const table = rows.filter(([, value]) => value).map(([name, value]) => `| ${name} | ${cell(value)} |`);
  return `# DFlash engine\n\n| | |\n| --- | --- |\n${table.join("\n")}\n${countsTable(counts)}`;
}

function countsTable(counts: unknown): string {
  const languages = Object.entries((counts ?? {}) as Record<string, Record<string, number>>);
  const [first] = languages;
  if (!first) return "";
  const names = Object.keys(first[1]);
  const rows = languages.map(
    ([language, each]) => `| ${language} | ${names.map((name) => each[name]).join(" | ")} |`,
  );
  return `
## Completions of this window

| language | ${names.map((name) => name.replaceAll("_", " ")).join(" | ")} |
| --- | ${names.map(() => "---:").join(" | ")} |
${rows.join("\n")}
`;
}

function cell(value: unknown): string {
  return String(value).replaceAll("|", "\\|");
}
