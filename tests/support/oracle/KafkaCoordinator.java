package org.apache.kafka.coordinator.share;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.DeleteShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.DeleteShareGroupStateResponseData;
import org.apache.kafka.common.message.DeleteShareGroupStateResponseDataJsonConverter;
import org.apache.kafka.common.message.InitializeShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.InitializeShareGroupStateResponseData;
import org.apache.kafka.common.message.InitializeShareGroupStateResponseDataJsonConverter;
import org.apache.kafka.common.message.ReadShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.ReadShareGroupStateResponseData;
import org.apache.kafka.common.message.ReadShareGroupStateResponseDataJsonConverter;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryRequestDataJsonConverter;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryResponseData;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryResponseDataJsonConverter;
import org.apache.kafka.common.message.WriteShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.WriteShareGroupStateResponseData;
import org.apache.kafka.common.message.WriteShareGroupStateResponseDataJsonConverter;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.share.generated.ShareSnapshotKey;
import org.apache.kafka.coordinator.share.metrics.ShareCoordinatorMetrics;

/**
 * Drives Kafka's own share coordinator shard with calls and jobs from standard input (one JSON object a line, the first
 * one the settings) and prints for each what it answered, the bytes of the records it wrote, and how far it could prune.
 * Records are loaded as a running coordinator loads them. Several records of one job are taken in the order of their
 * keys, for Kafka's own order is that of a hash map.
 */
public final class KafkaCoordinator {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final AtomicLong now = new AtomicLong();
    private final ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();
    private final Time clock = time();
    private final ShareCoordinatorShard shard;
    private long offset = 0;

    public KafkaCoordinator(JsonNode settings) throws Exception {
        ShareCoordinatorConfig config = new ShareCoordinatorConfig(new AbstractConfig(ShareCoordinatorConfig.CONFIG_DEF, Map.of(
            ShareCoordinatorConfig.SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT_CONFIG, settings.get("limit").asInt(),
            ShareCoordinatorConfig.COLD_PARTITION_SNAPSHOT_INTERVAL_MS_CONFIG, settings.get("cold_after_ms").asInt()
        ), false));
        shard = new ShareCoordinatorShard.Builder(config)
            .withSnapshotRegistry(Registries.newRegistry())
            .withCoordinatorMetrics(new ShareCoordinatorMetrics())
            .withTopicPartition(new TopicPartition("__share_group_state", 0))
            .withTime(clock)
            .build();
        know(settings.get("topics"));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        KafkaCoordinator coordinator = new KafkaCoordinator(JSON.readTree(lines.readLine()));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(JSON.writeValueAsString(coordinator.step(JSON.readTree(line))));
        }
        out.flush();
    }

    /** The class that it takes moved between packages. */
    private Time time() {
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[]{Time.class},
            (proxy, method, arguments) -> method.getName().equals("nanoseconds") ? now.get() * 1_000_000 : (Object) now.get());
    }

    private void know(JsonNode topics) {
        ClassLoader loader = CoordinatorMetadataImage.class.getClassLoader();
        CoordinatorMetadataImage image = (CoordinatorMetadataImage) Proxy.newProxyInstance(
            loader, new Class<?>[]{CoordinatorMetadataImage.class}, (proxy, method, arguments) -> {
                JsonNode count = topics.get(arguments[0].toString());
                return Optional.ofNullable(count).map(found -> Proxy.newProxyInstance(
                    loader, new Class<?>[]{CoordinatorMetadataImage.TopicMetadata.class},
                    (inner, asked, none) -> asked.getName().equals("partitionCount") ? found.asInt() : (Object) "topic"));
            });
        shard.onMetadataUpdate(null, image);
    }

    private ObjectNode step(JsonNode line) throws Exception {
        now.set(line.get("now").asLong());
        JsonNode request = line.get("request");
        CoordinatorResult<?, CoordinatorRecord> result = switch (line.get("op").asText()) {
            case "initialize" -> shard.initializeState(InitializeShareGroupStateRequestDataJsonConverter.read(request, (short) 0));
            case "read" -> shard.readStateAndMaybeUpdateLeaderEpoch(
                ReadShareGroupStateRequestDataJsonConverter.read(request, (short) 0));
            case "write" -> shard.writeState(WriteShareGroupStateRequestDataJsonConverter.read(request, (short) 1));
            case "delete" -> shard.deleteState(DeleteShareGroupStateRequestDataJsonConverter.read(request, (short) 0));
            case "summary" -> shard.readStateSummary(ReadShareGroupStateSummaryRequestDataJsonConverter.read(request, (short) 1));
            case "cold" -> shard.snapshotColdPartitions();
            case "topics" -> forget(line);
            default -> throw new IllegalArgumentException(line.toString());
        };
        ObjectNode answer = JSON.createObjectNode();
        answer.set("answer", spelt(result.response()));
        write(result, answer.putArray("records"));
        Optional<Long> needed = shard.lastRedundantOffset().response();
        answer.put("needed_from", needed.orElse(-1L));
        return answer;
    }

    public ShareCoordinatorShard shard() {
        return shard;
    }

    public Time clock() {
        return clock;
    }

    public void setTime(long milliseconds) {
        now.set(milliseconds);
    }

    /** Takes the records of a result into memory and adds their bytes to {@code records}. */
    public void write(CoordinatorResult<?, CoordinatorRecord> result, ArrayNode records) {
        List<CoordinatorRecord> written = new ArrayList<>(result.records());
        written.sort(Comparator.comparing(KafkaCoordinator::order));
        for (CoordinatorRecord record : written) {
            ArrayNode pair = records.addArray().add(serde.serializeKey(record));
            byte[] value = serde.serializeValue(record);
            if (value == null) {
                pair.addNull();
            } else {
                pair.add(value);
            }
            shard.replay(offset++, -1L, (short) -1, record);
        }
    }

    private CoordinatorResult<?, CoordinatorRecord> forget(JsonNode line) {
        know(line.get("topics"));
        Set<Uuid> gone = new HashSet<>();
        line.get("gone").forEach(id -> gone.add(Uuid.fromString(id.asText())));
        return shard.maybeCleanupShareState(gone);
    }

    /** Only snapshots and tombstones are ever written together. */
    private static String order(CoordinatorRecord record) {
        if (record.key() instanceof ShareSnapshotKey key) {
            return key.groupId() + '\0' + key.topicId() + '\0' + String.format("%010d", key.partition());
        }
        return "";
    }

    private static JsonNode spelt(Object response) {
        if (response instanceof InitializeShareGroupStateResponseData data) {
            return InitializeShareGroupStateResponseDataJsonConverter.write(data, (short) 0);
        }
        if (response instanceof ReadShareGroupStateResponseData data) {
            return ReadShareGroupStateResponseDataJsonConverter.write(data, (short) 0);
        }
        if (response instanceof WriteShareGroupStateResponseData data) {
            return WriteShareGroupStateResponseDataJsonConverter.write(data, (short) 1);
        }
        if (response instanceof DeleteShareGroupStateResponseData data) {
            return DeleteShareGroupStateResponseDataJsonConverter.write(data, (short) 0);
        }
        if (response instanceof ReadShareGroupStateSummaryResponseData data) {
            return ReadShareGroupStateSummaryResponseDataJsonConverter.write(data, (short) 1);
        }
        return JSON.nullNode();
    }
}
