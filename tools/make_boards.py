"""Write the Grafana boards, dashboards/grafana/*.json, in the form that Grafana imports and provisions.

.venv/bin/python tools/make_boards.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from acktrail.model.queue_status import STATUS_TABLE, Urgency
from acktrail.view.wording import in_words

FOLDER: Final = Path(__file__).parents[1] / "dashboards/grafana"
SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
CLUSTER: Final = 'cluster=~"$cluster"'
GROUP: Final = f'{CLUSTER},group=~"$group"'
ANY: Final = 'group=~"$group"'
WORKER: Final = 'group=~"$group",topic=~"$topic"'
LOSSES: Final = 'reason=~"pruned|lost_from_tables|log_replaced"'
STATUSES: Final = {
    "inconsistent": "super-light-red",
    "retention_risk": "dark-red",
    "reject_storm": "semi-dark-red",
    "archiving_stuck": "light-red",
    "release_loop": "dark-orange",
    "stuck": "red",
    "unattended": "orange",
    "loss_unseen": "light-orange",
    "lagging": "yellow",
    "state_unknown": "purple",
    "rewound": "blue",
    "not_judged": "light-blue",
    "idle": "super-light-green",
    "ok": "green",
}
URGENT: Final = [status.value for status, of in STATUS_TABLE.items() if of.urgency is Urgency.ACT]
QUIET: Final = [status.value for status, of in STATUS_TABLE.items() if of.urgency is Urgency.NOTHING]
SEVERITIES: Final = {"critical": "red", "error": "orange", "warning": "yellow", "info": "blue"}
RESULTS: Final = {"holds": "green", "fails": "red", "noted": "blue", "not_evaluated": "purple"}
COLOURS: Final = {**STATUSES, **SEVERITIES, **RESULTS}
"""The same on every panel."""
RATE: Final = "[$__rate_interval]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a panel; `legend` names its series."""

    expression: str
    legend: str = ""


def tile(title: str, about: str, expression: str, *, unit: str = "short", limits: tuple[float, ...] = ()) -> stat.Panel:
    """One number: green, and from each of `limits` on yellow, then red."""
    steps = zip(("green", *("yellow", "red")[-len(limits) :]), (None, *limits), strict=True) if limits else ()
    panel = (
        stat.Panel().title(title).description(about).datasource(SOURCE).unit(unit).span(4).height(4).no_value("none")
    )
    if steps:
        thresholds = [models.Threshold(color=colour, value=value) for colour, value in steps]
        panel = panel.thresholds(
            dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(thresholds)
        ).color_mode(common_models.BigValueColorMode.BACKGROUND)
    return panel.graph_mode(common_models.BigValueGraphMode.NONE).with_target(target(Query(expression=expression), 0))


def lines(
    title: str,
    about: str,
    *queries: Query,
    unit: str = "short",
    parts: Iterable[str] | None = None,
) -> timeseries.Panel:
    """Series over time; `parts`: the names of those that are stacked, as parts of a whole, in colours of their own."""
    panel = timeseries.Panel().title(title).description(about).datasource(SOURCE).unit(unit).span(12).height(8).min(0)
    panel = panel.fill_opacity(8 if parts is None else 60).line_width(1).no_value("none")
    if parts is not None:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    for name in parts or ():
        colour = {"mode": "fixed", "fixedColor": COLOURS[name]}
        panel = panel.override_by_name(name, [models.DynamicConfigValue(id_val="color", value=colour)])
    for number, query in enumerate(queries):
        panel = panel.with_target(target(query, number))
    return panel


def rows(title: str, about: str, expression: str, hidden: Iterable[str]) -> table.Panel:
    """One row a series, without the columns `hidden`."""
    query = (
        prometheus.Dataquery().expr(expression).ref_id("A").instant().format(PromQueryFormat.TABLE).datasource(SOURCE)
    )
    tidy = {"excludeByName": dict.fromkeys(("Time", "__name__", "instance", "job", *hidden), True)}
    panel = table.Panel().title(title).description(about).datasource(SOURCE).span(24).height(9).no_value("none")
    return panel.with_target(query).with_transformation(models.DataTransformerConfig(id_val="organize", options=tidy))


def target(query: Query, number: int) -> prometheus.Dataquery:
    found = prometheus.Dataquery().expr(query.expression).ref_id("ABCDEFGH"[number]).datasource(SOURCE)
    return found.legend_format(query.legend) if query.legend else found


def board(uid: str, title: str, about: str) -> dashboard.Dashboard:
    """An empty board of the last day with the datasource and the clusters to choose from."""
    found = dashboard.Dashboard(title).uid(uid).description(about).tags(["acktrail", "kafka", "share groups"])
    found = (
        found.time("now-24h", "now")
        .refresh("1m")
        .timezone("browser")
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
    )
    source = dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    return found.with_variable(source).with_variable(
        choice("cluster", "Cluster", "label_values(acktrail_tables_read_timestamp_seconds, cluster)")
    )


def choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A variable with all values that the metrics have."""
    found = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    found = found.multi(multi=True).include_all(include_all=True).all_value(".*")
    return found.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)


def overview() -> dashboard.Dashboard:
    found = board("acktrail-overview", "acktrail: overview", "Is the trail fresh and complete, and who is in trouble?")
    urgent = f'{CLUSTER},status=~"{"|".join(URGENT)}"'
    found = found.with_row(dashboard.Row("Now"))
    for panel in (
        tile(
            *(
                "Age of the export",
                "Since an export or an observation last wrote; observations do on idle clusters, too.",
            ),
            *(f"time() - min(acktrail_export_timestamp_seconds{{{CLUSTER}}})",),
            unit="s",
            limits=(900, 1800),
        ),
        tile(
            *("Age of the statuses", "Since the observation that statuses and verdicts are of."),
            *(f"time() - min(acktrail_statuses_timestamp_seconds{{{CLUSTER}}})",),
            unit="s",
            limits=(4500, 7200),
        ),
        tile(
            *("Gaps", "Gaps of the export that nobody asked for, since it began."),
            *(f"sum(acktrail_export_gaps{{{CLUSTER},{LOSSES}}})",),
            limits=(1,),
        ),
        tile(
            *("Groups to act on", f"Groups with a status that asks for action: {', '.join(map(in_words, URGENT))}."),
            *(f"sum(acktrail_groups{{{urgent}}})",),
            limits=(1,),
        ),
        tile(
            *("Critical findings", "Open ones of the newest reconciliation."),
            *(f'sum(acktrail_open_findings{{{CLUSTER},severity="critical"}})',),
            limits=(1,),
        ),
        tile(
            *("Critical expectations that fail", "Of the newest validation; while there is one, nothing is published."),
            *(f"sum(acktrail_critical_expectations_failed{{{CLUSTER}}})",),
            limits=(1,),
        ),
    ):
        found = found.with_panel(panel)
    found = found.with_panel(
        rows(
            *("Groups in trouble", "The worst status of each group that is not quiet, as far as groups have series."),
            f'acktrail_group_status{{{CLUSTER},status!~"{"|".join(QUIET)}"}} == 1',
            hidden=("Value",),
        )
    )
    found = found.with_row(dashboard.Row("Over time"))
    for panel in (
        lines(
            *("Groups by status", "Each group counts once, by the worst status of its share partitions."),
            Query(expression=f"sum by (status) (acktrail_groups{{{CLUSTER}}})", legend="{{status}}"),
            parts=STATUSES,
        ),
        lines(
            *("Share partitions by status", "All of them, also those without series of their own."),
            Query(expression=f"sum by (status) (acktrail_share_partitions{{{CLUSTER}}})", legend="{{status}}"),
            parts=STATUSES,
        ),
        lines(
            *("Unfinished records", "Of share partitions where they are known; the others are counted beside."),
            Query(expression=f"sum(acktrail_known_unfinished_records{{{CLUSTER}}})", legend="unfinished records"),
            Query(
                expression=f"sum(acktrail_unfinished_unknown_share_partitions{{{CLUSTER}}})",
                legend="share partitions without",
            ),
        ),
        lines(
            *("Open findings", "Of the newest reconciliation, by severity."),
            Query(expression=f"sum by (severity) (acktrail_open_findings{{{CLUSTER}}})", legend="{{severity}}"),
            parts=SEVERITIES,
        ),
        lines(
            *("Expectations", "Of the newest validation. Not evaluated is neither passed nor failed."),
            Query(expression=f"sum by (state) (acktrail_expectations{{{CLUSTER}}})", legend="{{state}}"),
            parts=RESULTS,
        ),
        lines(
            *(
                "Verdicts that do not match",
                "Share partitions whose durable state and whose cluster differ, by verdict.",
            ),
            Query(
                expression=f'sum by (verdict) (acktrail_verdicts{{{CLUSTER},verdict!="match"}})', legend="{{verdict}}"
            ),
            Query(expression=f"sum(acktrail_lasting_mismatches{{{CLUSTER}}})", legend="in two runs"),
        ),
        lines(
            *("Export", "What the workers committed: records of the state topic a second, and records behind its end."),
            Query(expression="sum(rate(acktrail_records_exported_total[$__rate_interval]))", legend="records/s"),
            Query(expression="sum by (connector) (acktrail_export_lag_records)", legend="behind: {{connector}}"),
        ),
        lines(
            *("Rules that are broken", "Open findings by rule."),
            Query(expression=f"sum by (rule) (acktrail_open_findings_by_rule{{{CLUSTER}}})", legend="{{rule}}"),
            parts=(),
        ),
        lines(
            *("Expansions", "Topics that gained partitions, and what is not proven safe of groups in these."),
            Query(expression=f"sum by (status) (acktrail_partition_expansions{{{CLUSTER}}})", legend="{{status}}"),
            Query(
                expression=f'sum by (verdict) (acktrail_expansion_verdicts{{{CLUSTER},verdict!="safe"}})',
                legend="groups: {{verdict}}",
            ),
            Query(expression=f"sum(acktrail_expansion_skipped_records{{{CLUSTER}}})", legend="skipped records"),
        ),
    ):
        found = found.with_panel(panel)
    return found


def groups() -> dashboard.Dashboard:
    found = board("acktrail-groups", "acktrail: share groups", "One group, or several: status, unfinished, members.")
    found = found.with_variable(
        choice("group", "Group", f"label_values(acktrail_group_status{{{CLUSTER}}}, group)")
    ).with_variable(choice("topic", "Topic", 'label_values(kafka_share_group_lag{group=~"$group"}, topic)'))
    for panel in (
        lines(
            *("Status", "Groups by the worst status of their share partitions."),
            Query(expression=f"sum by (status) (acktrail_group_status{{{GROUP}}})", legend="{{status}}"),
            parts=STATUSES,
        ),
        lines(
            *("Share partitions by status", "Of the chosen groups."),
            Query(expression=f"sum by (status) (acktrail_group_share_partitions{{{GROUP}}})", legend="{{status}}"),
            parts=STATUSES,
        ),
        lines(
            *("Unfinished records by group", "As of the reconciliations, of share partitions where they are known."),
            Query(
                expression=f"sum by (group) (acktrail_group_known_unfinished_records{{{GROUP}}})", legend="{{group}}"
            ),
        ),
        lines(
            *("Share partitions whose unfinished records are not known", "They are in no sum."),
            Query(
                expression=f"sum by (group) (acktrail_group_unfinished_unknown_share_partitions{{{GROUP}}})",
                legend="{{group}}",
            ),
        ),
        lines(
            *(
                "How deliveries ended",
                "Within the newest observations: acknowledged, released (or timed out), archived.",
            ),
            Query(expression=f"sum by (outcome) (acktrail_group_recent_deliveries{{{GROUP}}})", legend="{{outcome}}"),
        ),
        lines(
            *("Time in this status", "Since the group has the status that it has."),
            Query(
                expression=f"time() - max by (group) (acktrail_group_status_since_timestamp_seconds{{{GROUP}}})",
                legend="{{group}}",
            ),
            unit="s",
        ),
        lines(
            *("Members", "As the group coordinator counts them (worker with ShareGroupOffsetsSource)."),
            Query(expression='sum by (group) (kafka_share_group_members{group=~"$group"})', legend="{{group}}"),
        ),
        lines(
            *("Lag by topic partition", "As of the newest observation of a worker: the 20 highest."),
            Query(
                expression=f"topk(20, kafka_share_group_lag{{{WORKER}}})", legend="{{group}} {{topic}} {{partition}}"
            ),
        ),
        lines(
            *("Start offsets", "How far the start offset moved in ten minutes: 0 with a lag is a stuck head."),
            Query(
                expression=f"sum by (group, topic) (delta(kafka_share_group_start_offset{{{WORKER}}}[10m]))",
                legend="{{group}} {{topic}}",
            ),
        ),
        lines(
            *("Records in flight", "In the memory of the brokers (JMX exporter), by share partition: the 20 highest."),
            Query(
                expression=f"topk(20, kafka_share_partition_in_flight_records{{{WORKER}}})",
                legend="{{group}} {{topic}} {{partition}}",
            ),
        ),
        lines(
            *("Lock timeouts", "Records a second whose acquisition lock ran out (JMX exporter)."),
            Query(
                expression="sum by (group) "
                f"(rate(kafka_share_partition_acquisition_lock_timeouts_total{{{WORKER}}}{RATE}))",
                legend="{{group}}",
            ),
        ),
        lines(
            *("Dead letters", "Records a second, and requests that failed (JMX exporter, Kafka 4.4)."),
            Query(
                expression=f"sum by (group) (rate(kafka_share_group_dead_letter_records_total{{{ANY}}}{RATE}))",
                legend="{{group}}",
            ),
            Query(
                expression="sum by (group) "
                f"(rate(kafka_share_group_failed_dead_letter_produce_requests_total{{{ANY}}}{RATE}))",
                legend="failed: {{group}}",
            ),
        ),
    ):
        found = found.with_panel(panel)
    return found


def brokers() -> dashboard.Dashboard:
    found = board(
        "acktrail-brokers", "acktrail: share groups on the brokers", "Kafka's own metrics, by the JMX exporter."
    )
    for panel in (
        lines(
            *("Acknowledgements", "Records a second by type. Kafka does not have them by group."),
            Query(
                expression=f"sum by (type) (rate(kafka_share_record_acknowledgements_total{RATE}))", legend="{{type}}"
            ),
        ),
        lines(
            *("Requests", "Requests a second of members, and those that failed."),
            Query(expression=f"sum(rate(kafka_share_fetch_requests_total{RATE}))", legend="fetch"),
            Query(expression=f"sum(rate(kafka_share_acknowledgement_requests_total{RATE}))", legend="acknowledge"),
            Query(expression=f"sum(rate(kafka_share_failed_fetch_requests_total{RATE}))", legend="fetch, failed"),
            Query(
                expression=f"sum(rate(kafka_share_failed_acknowledgement_requests_total{RATE}))",
                legend="acknowledge, failed",
            ),
        ),
        lines(
            *("Writes to the state topic", "A second, by broker."),
            Query(
                expression=f"sum by (instance) (rate(kafka_share_coordinator_writes_total{RATE}))",
                legend="{{instance}}",
            ),
        ),
        lines(
            *("Latency of these writes", "The highest, by broker."),
            Query(
                expression="max by (instance) (kafka_share_coordinator_write_latency_max_seconds)",
                legend="{{instance}}",
            ),
            unit="s",
        ),
        lines(
            *("State partitions", "By state. One that failed serves no group."),
            Query(expression="sum by (state) (kafka_share_coordinator_partitions)", legend="{{state}}"),
        ),
        lines(
            *("Pruning", "Offset up to which each state partition was pruned: what was not exported below it is lost."),
            Query(
                expression="max by (topic, partition) (kafka_share_coordinator_last_pruned_offset)",
                legend="{{partition}}",
            ),
        ),
        lines(
            *("Sessions", "Share sessions, and the share partitions in them."),
            Query(expression="sum(kafka_share_sessions)", legend="sessions"),
            Query(expression="sum(kafka_share_session_partitions)", legend="share partitions"),
            Query(expression=f"sum(rate(kafka_share_session_evictions_total{RATE}))", legend="evictions/s"),
        ),
        lines(
            *("Time to load a share partition", "99 of 100 took less, by broker."),
            Query(
                expression='max by (instance) (kafka_share_partition_load_seconds{percentile="99"})',
                legend="{{instance}}",
            ),
            unit="s",
        ),
    ):
        found = found.with_panel(panel)
    return found


def boards() -> dict[str, str]:
    """The text of each file, by its name."""
    made = [overview(), groups(), brokers()]
    encoded: list[tuple[Any, str]] = [
        (each.build(), JSONEncoder(sort_keys=True, indent=2).encode(each.build())) for each in made
    ]
    return {f"{each.uid}.json": text + "\n" for each, text in encoded}


def main(folder: Path) -> None:
    for name, text in boards().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
