"""For tests of your own: does the code at hand still fit what is recorded?"""

from outlast.api.replaying import Misfit, Replayed, replay

__all__ = ["Misfit", "Replayed", "replay"]
