-- What the user may set, from `vim.g.dflash` or `require("dflash").setup()`; the second wins.
local M = {}

---@class dflash.Keys Each a left-hand side of insert mode, or false for none.
---@field accept string|false
---@field accept_word string|false
---@field accept_line string|false
---@field next string|false
---@field previous string|false
---@field dismiss string|false

---@class dflash.Config
---@field cmd string[] The server and its arguments.
---@field server table The server's own options: profile, exclude and so on, sent as `initializationOptions`.
---@field keys dflash.Keys
---@field filetypes table<string, boolean> Filetypes without completions are false.
local DEFAULTS = {
  cmd = { "dflash-lsp", "lsp" },
  server = {},
  keys = {
    accept = "<Tab>",
    accept_word = "<M-Right>",
    accept_line = "<M-C-Right>",
    next = "<M-]>",
    previous = "<M-[>",
    dismiss = "<C-]>",
  },
  filetypes = {},
}

---@type dflash.Config?
local config

--- What is wrong with the options, a few words each.
---@param given any
---@return string[]
local function problems_of(given)
  if type(given) ~= "table" then
    return { "the options must be a table" }
  end
  local problems = {}
  for key, value in pairs(given) do
    if DEFAULTS[key] == nil then
      table.insert(problems, ("there is no option %s"):format(key))
    elseif type(value) ~= "table" then
      table.insert(problems, ("%s must be a table"):format(key))
    end
  end
  for key, lhs in pairs(type(given.keys) == "table" and given.keys or {}) do
    if DEFAULTS.keys[key] == nil then
      table.insert(problems, ("there is no key %s"):format(key))
    elseif lhs ~= false and type(lhs) ~= "string" then
      table.insert(problems, ("the key %s must be a string or false"):format(key))
    end
  end
  if type(given.cmd) == "table" and (type(given.cmd[1]) ~= "string" or not vim.islist(given.cmd)) then
    table.insert(problems, "cmd must be a list of strings")
  end
  return problems
end

--- Take the user's options; what is wrong with them is told in one line, and the defaults stand in for all.
---@param given table?
function M.set(given)
  given = given or {}
  local problems = problems_of(given)
  if #problems > 0 then
    vim.notify("dflash: " .. table.concat(problems, "; "), vim.log.levels.WARN)
    given = {}
  end
  config = vim.tbl_deep_extend("force", DEFAULTS, given)
  if given.cmd then
    config.cmd = given.cmd
  end
end

---@return dflash.Config
function M.get()
  if not config then
    M.set(vim.g.dflash)
  end
  return config --[[@as dflash.Config]]
end

return M
