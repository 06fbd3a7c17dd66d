-- The completion at the cursor: asked for at every key, shown as it grows, accepted whole or in pieces.
--
--   nothing -> asked -> shown, growing -> shown, whole
--      any key, move or leave: what is asked for is cancelled; what still fits to the text stays shown
local documents = require("dflash.documents")
local ghost = require("dflash.ghost")
local pieces = require("dflash.pieces")
local server = require("dflash.server")
local status = require("dflash.status")

local M = {}

---@class dflash.Spot Where the cursor is, in which text.
---@field buf integer
---@field tick integer changedtick
---@field row integer 0-based
---@field column integer byte, 0-based

---@class dflash.Item
---@field text string lines end with \n
---@field replaced integer bytes behind the cursor that the text takes the place of

---@class dflash.Shown
---@field spot dflash.Spot
---@field items dflash.Item[]
---@field index integer of the item that is shown
---@field whole boolean the server has no more to add
---@field before string the cursor's line up to the cursor
---@field after string what is right of the cursor
---@field lines integer of the buffer
---@field taken integer UTF-16 units that were accepted of it so far

---@class dflash.Asked
---@field spot dflash.Spot
---@field cancel fun()
---@field step integer how far to go among the alternatives, once they are there

---@type dflash.Shown?
local shown
---@type dflash.Asked?
local asked
---@type dflash.Spot? where the user said that nothing shall be shown
local dismissed

---@return dflash.Spot
local function here()
  local buf = vim.api.nvim_get_current_buf()
  local cursor = vim.api.nvim_win_get_cursor(0)
  return {
    buf = buf,
    tick = vim.api.nvim_buf_get_changedtick(buf),
    row = cursor[1] - 1,
    column = cursor[2],
  }
end

---@param spot dflash.Spot?
---@param other dflash.Spot
---@return boolean
local function is_same(spot, other)
  return spot ~= nil
    and spot.buf == other.buf
    and spot.tick == other.tick
    and spot.row == other.row
    and spot.column == other.column
end

--- Whether anything may be offered now. Not in a macro, recorded or run: it must do the same when it is run again.
---@param buf integer
---@return boolean
local function may_offer(buf)
  return status.known.enabled
    and not status.is_snoozed()
    and vim.b[buf].dflash ~= false
    and vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
    and vim.fn.pumvisible() == 0
    and vim.fn.reg_recording() == ""
    and vim.fn.reg_executing() == ""
    and documents.is_eligible(buf)
end

local function cancel()
  if asked then
    asked.cancel()
    asked = nil
  end
end

local function hide()
  if shown then
    ghost.hide(shown.spot.buf)
    shown = nil
  end
end

---@param what dflash.Shown
local function show(what)
  if shown and shown.spot.buf ~= what.spot.buf then
    hide()
  end
  shown = what
  local item = what.items[what.index]
  local hint = #what.items > 1 and ("%d/%d"):format(what.index, #what.items) or ""
  ghost.show(what.spot.buf, what.spot.row, what.spot.column, item.text, item.replaced, hint)
end

---@param spot dflash.Spot
---@param items dflash.Item[]
---@param whole boolean
---@return dflash.Shown
local function shown_at(spot, items, whole)
  local line = vim.api.nvim_buf_get_lines(spot.buf, spot.row, spot.row + 1, true)[1]
  return {
    spot = spot,
    items = items,
    index = 1,
    whole = whole,
    before = line:sub(1, spot.column),
    after = line:sub(spot.column + 1),
    lines = vim.api.nvim_buf_line_count(spot.buf),
    taken = 0,
  }
end

--- What was typed since it was shown, when nothing else has changed; nil when something has.
---@param what dflash.Shown
---@param spot dflash.Spot
---@return string?
local function typed_since(what, spot)
  local from = what.spot
  local is_behind = spot.row > from.row or (spot.row == from.row and spot.column >= from.column)
  local lines = what.lines + spot.row - from.row
  if spot.buf ~= from.buf or not is_behind or vim.api.nvim_buf_line_count(spot.buf) ~= lines then
    return nil
  end
  local found = vim.api.nvim_buf_get_lines(spot.buf, from.row, spot.row + 1, true)
  if found[1]:sub(1, from.column) ~= what.before or found[#found]:sub(spot.column + 1) ~= what.after then
    return nil
  end
  found[#found] = found[#found]:sub(1, spot.column)
  found[1] = found[1]:sub(from.column + 1)
  return table.concat(found, "\n")
end

--- What is left of the shown completion at a spot that was reached by typing it; nil when nothing is.
---@param spot dflash.Spot
---@return dflash.Shown?
local function left_at(spot)
  local typed = shown and typed_since(shown, spot)
  if not shown or not typed then
    return nil
  end
  local items, index = {}, nil
  for number, item in ipairs(shown.items) do
    if #item.text > #typed and vim.startswith(item.text, typed) then
      table.insert(items, { text = item.text:sub(#typed + 1), replaced = item.replaced })
      index = number == shown.index and #items or index
    end
  end
  if not index then
    return nil
  end
  local left = shown_at(spot, items, shown.whole)
  left.index, left.taken = index, shown.taken
  return left
end

---@param result table?
---@return dflash.Item[]
local function items_of(result)
  local items = {}
  for _, item in ipairs(result and (result.items or result) or {}) do
    table.insert(items, {
      text = (item.insertText:gsub("\r\n?", "\n")),
      replaced = item.range and item.range["end"].character - item.range.start.character or 0,
    })
  end
  return items
end

--- More of what was asked for has come, or all of it.
---@param spot dflash.Spot where it was asked for
---@param items dflash.Item[]
---@param whole boolean
---@param step integer
local function receive(spot, items, whole, step)
  if not is_same(spot, here()) or not may_offer(spot.buf) then
    return
  end
  local old = shown and is_same(shown.spot, spot) and shown or nil
  if #items == 0 then
    if whole then
      hide()
    end
    return
  end
  if not whole and old and #old.items[old.index].text >= #items[1].text then
    return -- it is about to grow past what is shown of it already
  end
  local new = shown_at(spot, items, whole)
  new.taken = old and old.taken or 0
  new.index = (step % #items) + 1
  show(new)
end

---@param spot dflash.Spot
---@param step integer? asks for alternatives, and shows the one that many further
local function ask(spot, step)
  local uri = documents.uri(spot.buf)
  if not uri then
    return
  end
  local mine = { spot = spot, step = step or 0 }
  local params = {
    textDocument = { uri = uri },
    position = { line = spot.row, character = spot.column },
    context = { triggerKind = step and 1 or 2 },
  }
  local stop = server.stream(spot.buf, params, function(value)
    if asked == mine and not step then
      receive(spot, items_of(value), false, 0)
    end
  end, function(error, result)
    if asked == mine then
      asked = nil
      receive(spot, error and {} or items_of(result), true, mine.step)
    end
  end)
  if stop then
    mine.cancel = stop
    asked = mine --[[@as dflash.Asked]]
  end
end

--- Something was typed, or the cursor has moved. What runs for another place is cancelled, what still fits stays.
function M.update()
  local spot = here()
  if asked and is_same(asked.spot, spot) then
    return
  end
  if shown and is_same(shown.spot, spot) then
    return
  end
  cancel()
  if not may_offer(spot.buf) or is_same(dismissed, spot) then
    hide()
    return
  end
  local left = left_at(spot)
  if left then
    show(left)
  else
    hide()
  end
  ask(spot)
end

--- Nothing is asked for any more, and nothing shown.
function M.clear()
  cancel()
  hide()
end

--- What is shown right where the cursor is.
---@return dflash.Shown?
local function shown_here()
  return shown and is_same(shown.spot, here()) and shown or nil
end

---@return boolean
function M.is_visible()
  return shown_here() ~= nil
end

--- The whole text that is shown, as it is shown.
---@return string?
function M.text()
  local what = shown_here()
  return what and what.items[what.index].text
end

--- Hide what is shown, and show nothing until something is typed.
---@return boolean was shown, or asked for
function M.dismiss()
  local was_there = M.is_visible() or asked ~= nil
  dismissed = here()
  M.clear()
  return was_there
end

--- Go on to another alternative; the first time, they are asked for.
---@param step integer
---@return boolean
function M.go(step)
  local spot = here()
  if not may_offer(spot.buf) then
    return false
  end
  local what = shown_here()
  if what and #what.items > 1 then
    what.index = (what.index - 1 + step) % #what.items + 1
    show(what)
    return true
  end
  if asked and is_same(asked.spot, spot) and asked.step ~= 0 then
    asked.step = asked.step + step
    return true
  end
  cancel()
  dismissed = nil
  ask(spot, step)
  return true
end

---@param text string
---@return integer
local function utf16_units(text)
  local _, units = vim.str_utfindex(text)
  return units
end

--- Put the first part of what is shown into the buffer.
---@param unit "all"|"word"|"line"
function M.insert(unit)
  local what = shown_here()
  if not what then
    return
  end
  local item = what.items[what.index]
  local piece = unit == "all" and item.text or pieces[unit](item.text)
  local spot = what.spot
  local is_all = piece == item.text
  if is_all and item.replaced > 0 then
    vim.api.nvim_buf_set_text(spot.buf, spot.row, spot.column, spot.row, spot.column + item.replaced, { "" })
  end
  -- As pasted text: no indentation is added to it, and it belongs to what `.` repeats.
  vim.api.nvim_paste(piece, false, -1)
  local uri = documents.uri(spot.buf)
  if is_all then
    M.clear()
    server.execute("dflash.accepted", { uri })
    return
  end
  what.taken = what.taken + utf16_units(piece)
  local told = { insertText = item.text, command = { title = "", command = "dflash.accepted", arguments = { uri } } }
  server.notify("textDocument/didPartiallyAcceptCompletion", { item = told, acceptedLength = what.taken })
  M.update()
end

return M
