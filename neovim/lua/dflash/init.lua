-- DFlash for Neovim: what mappings, statuslines and other plugins call.
local M = {}

local wired = false

--- The events that a completion lives by; set up when the first buffer is attached.
local function wire()
  if wired then
    return
  end
  wired = true
  local completion = require("dflash.completion")
  local documents = require("dflash.documents")
  local server = require("dflash.server")
  local group = vim.api.nvim_create_augroup("dflash", {})
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, callback = callback })
  end
  on({ "TextChangedI", "TextChangedP", "CursorMovedI" }, completion.update)
  on("CompleteDone", vim.schedule_wrap(completion.update)) -- once the menu is gone
  on({ "BufLeave", "WinLeave", "RecordingEnter" }, completion.clear)
  on("ModeChanged", function() -- <C-c> leaves insert mode without InsertLeave
    if vim.v.event.new_mode:sub(1, 1) ~= "i" then
      completion.clear()
    elseif vim.v.event.old_mode:sub(1, 2) == "ni" then
      vim.schedule(completion.update) -- back from <C-o>
    end
  end)
  on({ "BufWritePost", "BufFilePost" }, function(event)
    documents.attach(event.buf)
  end)
  on("BufUnload", function(event)
    documents.forget(event.buf)
  end)
  server.listen({
    started = function()
      for _, buf in ipairs(vim.api.nvim_list_bufs()) do
        if vim.api.nvim_buf_is_loaded(buf) and vim.bo[buf].buflisted then
          documents.attach(buf)
        end
      end
    end,
    ready = completion.update, -- who waits at a place is told without another key
  })
  require("dflash.keys").map()
end

--- Whether Neovim itself shows our completions in this session, by its own client.
local function is_native()
  return vim.lsp.inline_completion ~= nil and vim.lsp.is_enabled("dflash")
end

--- Begin to complete in a buffer, unless it is of a kind that gets none.
---@param buf integer
function M.attach(buf)
  if is_native() or not vim.api.nvim_buf_is_valid(buf) or not require("dflash.documents").is_eligible(buf) then
    return
  end
  wire()
  if not require("dflash.status").known.failure then
    require("dflash.server").start()
  end
  require("dflash.documents").attach(buf)
  require("dflash.completion").update()
end

--- Set the options; to be called before the first buffer is opened, by lazy.nvim for one.
---@param options table? see |dflash-options|
function M.setup(options)
  require("dflash.config").set(options)
end

---@param unit "all"|"word"|"line"
---@return boolean whether there was something to accept
local function accept(unit)
  if not require("dflash.completion").is_visible() then
    return false
  end
  -- Between breaks of the undo sequence, so that `u` takes back the completion alone.
  local keys = ('<C-g>u<Cmd>lua require("dflash.completion").insert("%s")<CR><C-g>u'):format(unit)
  vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes(keys, true, true, true), "ni", false)
  return true
end

function M.accept()
  return accept("all")
end

function M.accept_word()
  return accept("word")
end

function M.accept_line()
  return accept("line")
end

function M.next()
  return require("dflash.completion").go(1)
end

function M.previous()
  return require("dflash.completion").go(-1)
end

function M.dismiss()
  return require("dflash.completion").dismiss()
end

---@return boolean whether a completion is shown at the cursor
function M.is_visible()
  return require("dflash.completion").is_visible()
end

---@param enabled boolean
local function enable(enabled)
  require("dflash.status").known.enabled = enabled
  require("dflash.completion")[enabled and "update" or "clear"]()
  require("dflash.status").changed()
end

function M.enable()
  enable(true)
end

function M.disable()
  enable(false)
end

function M.toggle()
  enable(not require("dflash.status").known.enabled)
end

--- Offer nothing for so many minutes; 0 ends it.
---@param minutes number? 5 when not given
function M.snooze(minutes)
  minutes = minutes or 5
  local status = require("dflash.status")
  status.known.snoozed_until = minutes > 0 and vim.uv.now() + minutes * 60000 or nil
  require("dflash.server").execute("dflash.snooze", { minutes })
  if minutes > 0 then
    require("dflash.completion").clear()
    vim.defer_fn(status.changed, minutes * 60000 + 10)
  end
  status.changed()
end

--- A few words for the statusline: "" in a buffer without completions.
---@return string
function M.status()
  if not require("dflash.documents").is_eligible(vim.api.nvim_get_current_buf()) then
    return ""
  end
  return (require("dflash.status").describe())
end

return M
