"""The first page."""

from cordwood.console.pages.page import PageRequest
from cordwood.console.views.overview import Overview, overview


def show_overview(request: PageRequest) -> Overview:
    keeper = request.console.keeper
    events = keeper.events if request.viewer.sees_cluster else ()
    return overview(request.snapshot, keeper.series, events)
