"""`sesa bank`: reading the skill bank, changing its cards, and keeping house. One module for each."""

import typer

from flows.commands.bank import changing, keeping, reading

app = typer.Typer(help="The skill bank: read any version, change cards, take in and give out, go back.", no_args_is_help=True)

app.command("list")(reading.list_cards)
app.command("show")(reading.show)
app.command("search")(reading.search)
app.command("versions")(reading.versions)
app.command("diff")(reading.diff)
app.command("history")(reading.history)
app.command("tombstones")(reading.tombstones)
app.command("stats")(reading.stats)
app.command("verify")(reading.verify)
app.command("suspend")(changing.suspend)
app.command("activate")(changing.activate)
app.command("approve")(changing.approve)
app.command("edit")(changing.edit)
app.command("evict")(changing.evict)
app.command("restore")(changing.restore)
app.command("export")(keeping.export)
app.command("import")(keeping.take_in)
app.command("tag")(keeping.tag)
app.command("compact")(keeping.compact)
app.command("purge")(keeping.purge)
