-- What is known of the server and its engine, and the few words for a statusline.
local M = {}

---@class dflash.EngineStatus Params of `dflash/status`.
---@field state "loading"|"ready"|"degraded"|"failed"
---@field progress number|userdata|nil share of the loading that is done, 0 to 1; vim.NIL when nobody knows
---@field reason string
---@field profile string
---@field target string
---@field draft string
---@field acceptance_length number
---@field tokens_per_s number

---@class dflash.Known
---@field enabled boolean
---@field snoozed_until number? uv.now(), ms
---@field failure string? why there is no server
---@field engine dflash.EngineStatus? nil: no server has told yet
M.known = { enabled = true }

--- Something has changed: the statusline is drawn again, and who listens for `User DflashStatus` is told.
function M.changed()
  vim.cmd.redrawstatus({ bang = true })
  vim.api.nvim_exec_autocmds("User", { pattern = "DflashStatus", modeline = false })
end

---@return boolean
function M.is_snoozed()
  return M.known.snoozed_until ~= nil and vim.uv.now() < M.known.snoozed_until
end

--- The words, and what lies behind them; the words are never empty.
---@return string words
---@return string detail
function M.describe()
  local known = M.known
  if known.failure then
    return "DFlash: failed", known.failure
  elseif not known.enabled then
    return "DFlash: off", "completions are disabled"
  elseif M.is_snoozed() then
    return "DFlash: snoozed", "completions are snoozed"
  end
  local engine = known.engine
  if not engine then
    return "DFlash: starting", "starting the server"
  elseif engine.state == "loading" then
    local percent = type(engine.progress) == "number" and (" %d %%"):format(engine.progress * 100) or ""
    return "DFlash: loading" .. percent, engine.reason
  elseif engine.state == "failed" then
    return "DFlash: failed", engine.reason
  end
  local details = {}
  if engine.reason ~= "" then
    table.insert(details, engine.state == "degraded" and engine.reason or "nothing offered: " .. engine.reason)
  end
  if engine.acceptance_length > 0 then
    table.insert(details, ("acceptance length %.2f"):format(engine.acceptance_length))
  end
  if engine.tokens_per_s > 0 then
    table.insert(details, ("%.0f tokens/s"):format(engine.tokens_per_s))
  end
  local name = engine.target ~= "" and engine.target or engine.profile
  return "DFlash: " .. name, table.concat(details, ", ")
end

return M
