import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const manifest = JSON.parse(readFileSync("package.json", "utf8"));
const properties: Record<string, { scope: string }> = manifest.contributes.configuration.properties;

/** What a workspace may set: it can only switch off and exclude by it. */
const MAY_BE_NARROWED = ["dflash.enable", "dflash.exclude"];

test("whatever names an executable, a profile or tracing comes from the user, never from a workspace", () => {
  const names = Object.keys(properties).filter((name) => !MAY_BE_NARROWED.includes(name));
  for (const name of names) assert.equal(properties[name]?.scope, "machine", name);
  assert.deepEqual(manifest.capabilities.untrustedWorkspaces.restrictedConfigurations.sort(), names.sort());
});

test("the extension and the changelog name the same version", () => {
  assert.ok(readFileSync("CHANGELOG.md", "utf8").includes(`## ${manifest.version}`));
});
