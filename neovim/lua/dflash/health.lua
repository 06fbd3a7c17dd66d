-- `:checkhealth dflash`: what is needed, whether it is there, and what the server says of itself.
local M = {}

--- The first line that a command prints, or nil and why not.
---@param cmd string[]
---@return string? line
---@return string problem
local function first_line(cmd)
  local ok, done = pcall(function()
    return vim.system(cmd, { text = true, timeout = 20000 }):wait()
  end)
  if not ok then
    return nil, tostring(done)
  elseif done.code ~= 0 then
    return nil, vim.trim(done.stderr or ""):match("[^\n]*")
  end
  return vim.trim(done.stdout or ""):match("[^\n]*"), ""
end

local function check_command()
  local cmd = require("dflash.config").get().cmd
  local path = vim.fn.exepath(cmd[1])
  if path == "" then
    vim.health.error(("%s cannot be run"):format(cmd[1]), {
      "Install it: pip install dflash-lsp",
      'Or name it: vim.g.dflash = { cmd = { "/path/to/dflash-lsp", "lsp" } }',
    })
    return
  end
  local version, problem = first_line({ path, "--version" })
  if version then
    vim.health.ok(("%s: %s"):format(path, version))
  else
    vim.health.error(("%s does not say its version: %s"):format(path, problem))
  end
end

local function check_server()
  local client = require("dflash.server").client()
  local words, detail = require("dflash.status").describe()
  if require("dflash.status").known.failure then
    vim.health.error(detail, { ":Dflash restart tries again" })
  elseif not client then
    vim.health.info("no server runs: it is started by the first file or the first key in insert mode")
  elseif client.offset_encoding ~= "utf-8" then
    vim.health.error("the server counts columns in " .. client.offset_encoding)
  else
    vim.health.ok(("a server runs for %s"):format(client.config.root_dir or "no folder"))
  end
  if client then
    local engine = require("dflash.status").known.engine
    local say = engine and engine.state == "failed" and vim.health.error or vim.health.info
    say(detail ~= "" and ("%s (%s)"):format(words, detail) or words)
  end
end

local function check_keys()
  for action, lhs in vim.spairs(require("dflash.config").get().keys) do
    if lhs then
      local now = vim.fn.maparg(lhs, "i", false, true)
      if now.desc and vim.startswith(now.desc, "DFlash: ") then
        vim.health.ok(("%s: %s"):format(lhs, action))
      else
        vim.health.warn(("%s does not %s: another plugin has mapped it since, or no buffer was opened yet"):format(lhs, action))
      end
    end
  end
end

function M.check()
  vim.health.start("dflash: Neovim")
  if vim.fn.has("nvim-0.10") == 0 then
    vim.health.error("Neovim 0.10 or later is needed")
    return
  end
  vim.health.ok(tostring(vim.version()))
  if vim.lsp.inline_completion and vim.lsp.is_enabled("dflash") then
    vim.health.info("Neovim's own inline completion shows our completions; the plugin stands back")
  end
  for _, other in ipairs({ "copilot", "codeium", "supermaven-nvim", "minuet" }) do
    if package.loaded[other] then
      vim.health.warn(other .. " is loaded as well: both show text at the cursor")
    end
  end
  vim.health.start("dflash: server")
  check_command()
  check_server()
  vim.health.start("dflash: keys")
  check_keys()
end

return M
