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

test("the Marketplace finds what it asks for", () => {
  // The categories that it knows, of those that fit.
  const known = ["AI", "Machine Learning", "Programming Languages", "Other"];
  assert.ok(manifest.categories.every((each: string) => known.includes(each)));
  assert.ok(manifest.keywords.length <= 30 && manifest.description.length <= 145);
  assert.match(manifest.publisher, /^[a-z0-9-]+$/i);
  const icon = readFileSync(manifest.icon);
  assert.equal(icon.toString("latin1", 1, 4), "PNG");
  assert.ok(
    icon.readUInt32BE(16) >= 128 && icon.readUInt32BE(16) === icon.readUInt32BE(20),
    "square, 128 or more",
  );
  // It shows no SVG that a README names.
  assert.doesNotMatch(readFileSync("README.md", "utf8"), /!\[[^\]]*\]\([^)]*\.svg/);
});

test("every command and setting has a title or a description, and the README names each setting", () => {
  const readme = readFileSync("README.md", "utf8");
  for (const command of manifest.contributes.commands) {
    assert.ok(command.title && command.category === "DFlash", command.command);
  }
  for (const [name, { markdownDescription }] of Object.entries<{ markdownDescription?: string }>(
    properties as never,
  )) {
    assert.ok(markdownDescription && readme.includes(`\`${name}\``), name);
  }
});
