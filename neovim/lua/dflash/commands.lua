-- `:Dflash`: one command, whose first word says what to do.
local M = {}

local COMMANDS = {
  enable = function(dflash)
    dflash.enable()
  end,
  disable = function(dflash)
    dflash.disable()
  end,
  toggle = function(dflash)
    dflash.toggle()
  end,
  snooze = function(dflash, minutes)
    if minutes and (not tonumber(minutes) or tonumber(minutes) < 0) then
      vim.notify("dflash: snooze takes a number of minutes", vim.log.levels.WARN)
    else
      dflash.snooze(tonumber(minutes))
    end
  end,
  status = function()
    local words, detail = require("dflash.status").describe()
    vim.notify(detail ~= "" and ("%s (%s)"):format(words, detail) or words)
  end,
  profile = function(_, name)
    if not name then
      vim.notify("dflash: which profile? dflash-lsp models lists them", vim.log.levels.WARN)
    elseif not require("dflash.server").execute("dflash.setProfile", { name }) then
      vim.notify("dflash: no server runs", vim.log.levels.WARN)
    end
  end,
  restart = function()
    require("dflash.completion").clear()
    require("dflash.server").restart()
  end,
}

---@param words string[]
function M.run(words)
  local command = COMMANDS[words[1]]
  if command and #words <= 2 then
    command(require("dflash"), words[2])
  else
    vim.notify("dflash: one of " .. table.concat(M.complete("", "Dflash "), ", "), vim.log.levels.WARN)
  end
end

---@param typed string
---@param line string
---@return string[]
function M.complete(typed, line)
  if line:find("^%S*%s+%S+%s") then
    return {}
  end
  local names = vim.tbl_filter(function(name)
    return vim.startswith(name, typed)
  end, vim.tbl_keys(COMMANDS))
  table.sort(names)
  return names
end

return M
