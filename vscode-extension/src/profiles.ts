// Which target and draft: the profiles that this machine can run, and the model of the chosen one.
import {
  ConfigurationTarget,
  type LogOutputChannel,
  ProgressLocation,
  type QuickPickItem,
  window,
  workspace,
} from "vscode";
import { readJson, runCommand } from "./commandLine";
import type { Server } from "./server";
import { readSettings, SECTION } from "./settings";

interface Listed {
  readonly profile: string;
  readonly kind: string;
  readonly reason: string;
  readonly can_run: boolean;
  readonly weights: number | null;
}

/** Lets the user pick one, and keeps it in the settings. */
export async function pickProfile(server: Server): Promise<void> {
  const { launch, folder } = server;
  if (!launch) {
    void window.showInformationMessage("DFlash: the server has not been found yet.");
    return;
  }
  const chosen = readSettings(workspace.getConfiguration(SECTION)).profile;
  const items = readJson(launch, folder, ["models"]).then((found) => {
    const { profiles, default: usual } = found as { profiles: Listed[]; default: string };
    return profiles.map((each) => profileItem(each, each.profile === (chosen || usual)));
  });
  const picked = await window.showQuickPick(items, {
    title: "DFlash: profile",
    placeHolder: "The target model and its draft",
    matchOnDescription: true,
  });
  if (picked) {
    await workspace.getConfiguration(SECTION).update("profile", picked.label, ConfigurationTarget.Global);
  }
}

export function profileItem(listed: Listed, isChosen: boolean): QuickPickItem {
  const size = listed.weights ? `${(listed.weights / 1e6).toFixed(0)} MB` : "no weights";
  return {
    label: listed.profile,
    description: [isChosen && "in use", listed.kind, size].filter(Boolean).join(" · "),
    detail: listed.can_run ? undefined : `cannot run here: ${listed.reason}`,
  };
}

/** Gets the model of the profile in use, before the user's eyes, and starts over with it. */
export async function fetchModel(server: Server, log: LogOutputChannel, profile: string): Promise<void> {
  const { launch, folder } = server;
  if (!launch) {
    void window.showInformationMessage("DFlash: install the server first.");
    return;
  }
  try {
    await window.withProgress(
      {
        location: ProgressLocation.Notification,
        title: `DFlash: getting the model of ${profile}`,
        cancellable: true,
      },
      async (progress, token) => {
        const ending = new AbortController();
        token.onCancellationRequested(() => ending.abort());
        const say = (line: string) => {
          log.info(line);
          progress.report({ message: line.slice(0, 60) });
        };
        await runCommand(launch, folder, ["fetch", profile], say, ending.signal);
      },
    );
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    log.error(`The model of ${profile} was not fetched: ${reason}`);
    void window
      .showErrorMessage(`DFlash: the model was not fetched: ${reason}`, "Show Logs")
      .then((choice) => choice && log.show());
    return;
  }
  await server.restart({ asked: true });
}
