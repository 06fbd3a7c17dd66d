// Asks the Python extensions, where they are installed, for the active interpreter.
import { extensions, type Uri, workspace } from "vscode";

// The parts used of the two extensions' public interfaces.
interface EnvironmentsExtension {
  getEnvironment(
    scope: Uri | undefined,
  ): Promise<{ execInfo?: { run?: { executable?: string } } } | undefined>;
}
interface PythonExtension {
  environments?: {
    getActiveEnvironmentPath(resource?: Uri): { path: string };
    resolveEnvironment(environment: { path: string }): Promise<{ executable: { uri?: Uri } } | undefined>;
  };
}

/**
 * The active interpreters by absolute path, without repeats: of each workspace folder, then of the window. An
 * extension that is absent, slow to answer or broken gives none, since the lookup goes on without it.
 */
export async function activeInterpreters(log: (line: string) => void): Promise<string[]> {
  const scopes = [...(workspace.workspaceFolders ?? []).map((folder) => folder.uri), undefined];
  const found = new Set<string>();
  for (const ask of [askEnvironmentsExtension, askPythonExtension]) {
    try {
      for (const interpreter of await within(10_000, ask(scopes))) found.add(interpreter);
    } catch (error) {
      log(`A Python extension gave no interpreter: ${error instanceof Error ? error.message : error}`);
    }
    if (found.size > 0) break;
  }
  return [...found];
}

async function askEnvironmentsExtension(scopes: (Uri | undefined)[]): Promise<string[]> {
  const api = await extensions
    .getExtension<EnvironmentsExtension>("ms-python.vscode-python-envs")
    ?.activate();
  if (!api?.getEnvironment) return [];
  const environments = await Promise.all(scopes.map((scope) => api.getEnvironment(scope)));
  return environments.flatMap((environment) => environment?.execInfo?.run?.executable ?? []);
}

async function askPythonExtension(scopes: (Uri | undefined)[]): Promise<string[]> {
  const api = await extensions.getExtension<PythonExtension>("ms-python.python")?.activate();
  const environments = api?.environments;
  if (!environments) return [];
  const resolved = await Promise.all(
    scopes.map((scope) => environments.resolveEnvironment(environments.getActiveEnvironmentPath(scope))),
  );
  return resolved.flatMap((environment) => environment?.executable.uri?.fsPath ?? []);
}

function within<T>(milliseconds: number, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${milliseconds / 1000} s`)), milliseconds);
  });
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}
