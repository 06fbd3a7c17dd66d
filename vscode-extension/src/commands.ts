// The extension's commands.
import {
  ConfigurationTarget,
  commands,
  type Disposable,
  type ExtensionContext,
  env,
  type LogOutputChannel,
  version,
  window,
  workspace,
} from "vscode";
import { readJson } from "./commandLine";
import { debugInformation } from "./debugInformation";
import { installServer } from "./install";
import { fetchModel, pickProfile } from "./profiles";
import type { Provider } from "./provider";
import type { Server } from "./server";
import { isEnabled, readSettings, SECTION } from "./settings";
import type { Status } from "./status";
import type { StatusPage } from "./statusPage";

const SNOOZE_MINUTES = 5;

export interface Parts {
  readonly context: ExtensionContext;
  readonly server: Server;
  readonly provider: Provider;
  readonly status: Status;
  readonly page: StatusPage;
  readonly log: LogOutputChannel;
}

export function registerCommands(parts: Parts): Disposable[] {
  const { server, provider, status, page, log } = parts;
  const snooze = async (minutes: number) => {
    status.setSnooze(minutes);
    provider.stop();
    await server.execute("dflash.snooze", minutes);
  };
  const all: Record<string, () => unknown> = {
    "dflash.restart": () => server.restart({ asked: true }),
    "dflash.engine.restart": () => server.execute("dflash.restartEngine"),
    "dflash.showLogs": () => log.show(),
    "dflash.enable": () => setEnabled(true),
    "dflash.disable": () => setEnabled(false),
    "dflash.enableForLanguage": () => setEnabledForLanguage(true),
    "dflash.disableForLanguage": () => setEnabledForLanguage(false),
    "dflash.pause": () => snooze(SNOOZE_MINUTES),
    "dflash.resume": () => snooze(0),
    "dflash.pickProfile": () => pickProfile(server),
    "dflash.fetchModel": () => fetchModel(server, log, profileInUse(status)),
    "dflash.install": async () => {
      if (await installServer(server.folder, log)) await server.restart({ asked: true });
    },
    "dflash.openStatusPage": () => page.open(),
    "dflash.copyDebugInformation": () => copyDebugInformation(parts),
    "dflash.dismiss": () => provider.dismiss(),
  };
  return Object.entries(all).map(([name, action]) => commands.registerCommand(name, action));
}

async function setEnabled(enable: boolean): Promise<void> {
  await workspace.getConfiguration(SECTION).update("enable", enable, ConfigurationTarget.Global);
  sayIfStillOff(enable);
}

async function setEnabledForLanguage(enable: boolean): Promise<void> {
  const document = window.activeTextEditor?.document;
  if (!document) return;
  const section = workspace.getConfiguration(SECTION, { languageId: document.languageId });
  await section.update("enable", enable, ConfigurationTarget.Global, true);
  sayIfStillOff(enable);
}

function sayIfStillOff(enable: boolean): void {
  const document = window.activeTextEditor?.document;
  if (enable && !isEnabled(workspace.getConfiguration(SECTION, document))) {
    void window.showInformationMessage(
      "DFlash: the settings of this workspace or language turn completions off.",
    );
  }
}

function profileInUse(status: Status): string {
  return status.engine?.profile || readSettings(workspace.getConfiguration(SECTION)).profile || "embedded";
}

async function copyDebugInformation({ context, server, status }: Parts): Promise<void> {
  const { launch, folder } = server;
  const doctor =
    launch &&
    (await readJson(launch, folder, ["doctor"]).catch((error: unknown) =>
      error instanceof Error ? error.message : String(error),
    ));
  const section = workspace.getConfiguration(SECTION);
  const text = debugInformation({
    extension: String(context.extension.packageJSON.version),
    editor: `${env.appName} ${version}`,
    platform: `${process.platform} ${process.arch}, node ${process.version}`,
    trusted: workspace.isTrusted,
    remote: env.remoteName,
    folders: workspace.workspaceFolders?.length ?? 0,
    settings: {
      ...readSettings(section),
      enable: section.get("enable"),
      streaming: section.get("streaming"),
    },
    server: launch ? `${[launch.command, ...launch.prefix].join(" ")} (from ${launch.origin})` : "not found",
    starts: server.starts,
    status: status.text,
    doctor,
  });
  await env.clipboard.writeText(text);
  void window.showInformationMessage(
    "DFlash: debug information copied. It holds paths and versions, no text of yours.",
  );
}
