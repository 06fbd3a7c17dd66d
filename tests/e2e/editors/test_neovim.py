from neovim import Neovim
from recording import AREA
from world import World


def test_first(start, replay: World):
    file = replay.write("a.py", "def area(width, height):\n")
    nvim = start(file)
    nvim.wait_ready()
    nvim.type("Go")
    nvim.wait_ghost(AREA.lstrip())
    nvim.type("<Tab>")
    nvim.wait(lambda: nvim.ghost == "")
    assert nvim.saved(file) == ("def area(width, height):\n" + AREA + "\n").encode()
