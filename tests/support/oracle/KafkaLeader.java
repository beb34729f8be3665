package kafka.server.share;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.InitializeShareGroupStateRequestData;
import org.apache.kafka.common.message.InitializeShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.ReadShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateResponseData;
import org.apache.kafka.common.message.WriteShareGroupStateRequestData;
import org.apache.kafka.common.message.WriteShareGroupStateResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.requests.WriteShareGroupStateResponse;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfigProvider;
import org.apache.kafka.coordinator.share.KafkaCoordinator;
import org.apache.kafka.server.share.PartitionMetadataProvider;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.dlq.ShareGroupDLQManager;
import org.apache.kafka.server.share.fetch.AcquisitionLockTimerTask;
import org.apache.kafka.server.share.persister.PartitionIdLeaderEpochData;
import org.apache.kafka.server.share.persister.PartitionStateBatchData;
import org.apache.kafka.server.share.persister.Persister;
import org.apache.kafka.server.share.persister.ReadShareGroupStateParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateResult;
import org.apache.kafka.server.share.persister.TopicData;
import org.apache.kafka.server.share.persister.WriteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.WriteShareGroupStateResult;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchPartitionData;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;

/**
 * Drives Kafka's own share-partition leader, which writes to Kafka's own share coordinator, with steps from standard
 * input (one JSON object a line; one with settings begins a new life), and prints for each what it answered, the bytes of
 * the records that were written and where the leader stands. Time moves by steps only; locks that ran out together end in
 * the order of their offsets.
 */
public final class KafkaLeader {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final JsonNode settings;
    private final KafkaCoordinator coordinator;
    private final List<AcquisitionLockTimerTask> tasks = new ArrayList<>();
    private ArrayNode records = JSON.createArrayNode();
    private Errors failing = Errors.NONE;
    private SharePartition leader;
    private long now;

    private KafkaLeader(JsonNode settings) throws Exception {
        this.settings = settings;
        this.coordinator = new KafkaCoordinator(settings);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        KafkaLeader found = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode node = JSON.readTree(line);
            if (node.has("delivery_count_limit")) {
                found = new KafkaLeader(node);
            } else {
                out.println(JSON.writeValueAsString(found.step(node)));
            }
        }
        out.flush();
    }

    private ObjectNode step(JsonNode line) throws Exception {
        records = JSON.createArrayNode();
        now = line.get("now").asLong();
        coordinator.setTime(now);
        ObjectNode answer = JSON.createObjectNode();
        switch (line.get("op").asText()) {
            case "initialize" -> {
                InitializeShareGroupStateRequestData request =
                    InitializeShareGroupStateRequestDataJsonConverter.read(line.get("request"), (short) 0);
                coordinator.write(coordinator.shard().initializeState(request), records);
            }
            case "lead" -> {
                tasks.clear();
                leader = newLeader(line.get("leader_epoch").asInt());
                answer.put("error", error(leader.maybeInitialize()));
            }
            case "fail" -> failing = Errors.valueOf(line.get("error").asText());
            case "acquire" -> acquire(line, answer.putArray("acquired"));
            case "acknowledge" -> answer.put("error", error(leader.acknowledge(line.get("member").asText(), batches(line))));
            case "release" -> answer.put("error", error(leader.releaseAcquiredRecords(line.get("member").asText())));
            case "log_start" -> leader.updateCacheAndOffsets(line.get("offset").asLong());
            case "time" -> endLocks();
            default -> throw new IllegalArgumentException(line.toString());
        }
        answer.set("records", records);
        if (leader != null) {
            answer.put("next", leader.nextFetchOffset());
            answer.put("can_acquire", leader.canAcquireRecords());
            answer.put("start", leader.startOffset());
            answer.put("end", leader.endOffset());
            answer.put("complete", leader.deliveryCompleteCount());
        }
        return answer;
    }

    private SharePartition newLeader(int leaderEpoch) {
        ShareGroupConfigProvider groups = new ShareGroupConfigProvider(null) {
            @Override
            public int recordLockDurationMsOrDefault(String groupId, int defaultValue) {
                return defaultValue;
            }

            @Override
            public int deliveryCountLimitOrDefault(String groupId, int defaultValue) {
                return defaultValue;
            }

            @Override
            public int partitionMaxRecordLocksOrDefault(String groupId, int defaultValue) {
                return defaultValue;
            }

            @Override
            public boolean isRenewAcknowledgeEnabled(String groupId) {
                return settings.get("renew_enabled").asBoolean();
            }

            @Override
            public Optional<String> errorsDLQTopicName(String groupId) {
                return Optional.of("dlq");
            }
        };
        Uuid topicId = Uuid.fromString(settings.get("topic_id").asText());
        return new SharePartition(
            settings.get("group").asText(), new TopicIdPartition(topicId, 0, "topic"), leaderEpoch,
            settings.get("max_record_locks").asInt(), settings.get("delivery_count_limit").asInt(),
            settings.get("record_lock_duration_ms").asInt(), timer(), coordinator.clock(), persister(),
            nothing(PartitionMetadataProvider.class), key -> { }, groups, null,
            () -> settings.get("dead_letter_queue").asBoolean(), nothing(ShareGroupDLQManager.class));
    }

    /** Something whose calls are over at once and say nothing. */
    @SuppressWarnings("unchecked")
    private static <T> T nothing(Class<T> type) {
        return (T) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[]{type}, (proxy, method, arguments) ->
            method.getReturnType() == CompletableFuture.class ? CompletableFuture.completedFuture(null) : null);
    }

    private Timer timer() {
        return new Timer() {
            @Override
            public void add(TimerTask task) {
                new TimerTaskEntry(task, ((AcquisitionLockTimerTask) task).expirationMs());
                tasks.add((AcquisitionLockTimerTask) task);
            }

            @Override
            public boolean advanceClock(long timeoutMs) {
                return false;
            }

            @Override
            public int size() {
                return tasks.size();
            }

            @Override
            public void close() {
            }
        };
    }

    private void endLocks() throws Exception {
        Field first = AcquisitionLockTimerTask.class.getDeclaredField("firstOffset");
        first.setAccessible(true);
        List<AcquisitionLockTimerTask> due = new ArrayList<>();
        for (AcquisitionLockTimerTask task : tasks) {
            if (task.expirationMs() <= now && !task.isCancelled()) {
                due.add(task);
            }
        }
        tasks.removeAll(due);
        tasks.removeIf(TimerTask::isCancelled);
        due.sort(Comparator.comparingLong(AcquisitionLockTimerTask::expirationMs).thenComparingLong(task -> {
            try {
                return first.getLong(task);
            } catch (IllegalAccessException e) {
                throw new IllegalStateException(e);
            }
        }));
        for (AcquisitionLockTimerTask task : due) {
            if (!task.isCancelled()) {
                task.run();
            }
        }
    }

    private void acquire(JsonNode line, ArrayNode told) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        for (JsonNode batch : line.get("batches")) {
            long base = batch.get(0).asLong();
            long last = batch.get(1).asLong();
            MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, Compression.NONE, TimestampType.CREATE_TIME, base);
            builder.appendWithOffset(base, 0L, null, new byte[1]);
            if (last > base) {
                builder.appendWithOffset(last, 0L, null, new byte[1]);
            }
            builder.close();
            buffer = builder.buffer();
        }
        buffer.flip();
        FetchPartitionData data = new FetchPartitionData(Errors.NONE, 1L << 40, 0L, MemoryRecords.readableRecords(buffer),
            Optional.empty(), OptionalLong.empty(), Optional.empty(), OptionalInt.empty(), false);
        ShareAcquireMode mode = line.get("mode").asInt() == 0 ? ShareAcquireMode.BATCH_OPTIMIZED : ShareAcquireMode.RECORD_LIMIT;
        try {
            leader.acquire(line.get("member").asText(), mode, line.get("batch_size").asInt(), line.get("most").asInt(),
                line.get("fetch_offset").asLong(), data, FetchIsolation.HIGH_WATERMARK).acquiredRecords().forEach(found ->
                    told.addArray().add(found.firstOffset()).add(found.lastOffset()).add(found.deliveryCount()));
        } catch (IllegalArgumentException failed) {
            // Kafka 4.4 asks its cache for an inconsistent range where a full leader finds nothing of what was due again.
            if (!"inconsistent range".equals(failed.getMessage())) {
                throw failed;
            }
        }
    }

    private static List<ShareAcknowledgementBatch> batches(JsonNode line) {
        List<ShareAcknowledgementBatch> found = new ArrayList<>();
        for (JsonNode batch : line.get("batches")) {
            List<Byte> types = new ArrayList<>();
            batch.get(2).forEach(type -> types.add((byte) type.asInt()));
            found.add(new ShareAcknowledgementBatch(batch.get(0).asLong(), batch.get(1).asLong(), types));
        }
        return found;
    }

    private static String error(CompletableFuture<Void> future) {
        try {
            future.join();
            return Errors.NONE.name();
        } catch (CompletionException failed) {
            return Errors.forException(failed.getCause()).name();
        }
    }

    private Persister persister() {
        return (Persister) Proxy.newProxyInstance(Persister.class.getClassLoader(), new Class<?>[]{Persister.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "readState" -> CompletableFuture.completedFuture(read((ReadShareGroupStateParameters) arguments[0]));
                case "writeState" -> CompletableFuture.completedFuture(write((WriteShareGroupStateParameters) arguments[0]));
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    private ReadShareGroupStateResult read(ReadShareGroupStateParameters parameters) {
        TopicData<PartitionIdLeaderEpochData> topic = parameters.groupTopicPartitionData().topicsData().get(0);
        PartitionIdLeaderEpochData asked = topic.partitions().get(0);
        CoordinatorResult<ReadShareGroupStateResponseData, CoordinatorRecord> result =
            coordinator.shard().readStateAndMaybeUpdateLeaderEpoch(new ReadShareGroupStateRequestData()
                .setGroupId(parameters.groupTopicPartitionData().groupId())
                .setTopics(List.of(new ReadShareGroupStateRequestData.ReadStateData().setTopicId(topic.topicId())
                    .setPartitions(List.of(new ReadShareGroupStateRequestData.PartitionData()
                        .setPartition(asked.partition()).setLeaderEpoch(asked.leaderEpoch()))))));
        coordinator.write(result, records);
        return ReadShareGroupStateResult.from(result.response());
    }

    private WriteShareGroupStateResult write(WriteShareGroupStateParameters parameters) {
        TopicData<PartitionStateBatchData> topic = parameters.groupTopicPartitionData().topicsData().get(0);
        PartitionStateBatchData asked = topic.partitions().get(0);
        if (failing != Errors.NONE) {
            return WriteShareGroupStateResult.from(WriteShareGroupStateResponse.toErrorResponseData(
                topic.topicId(), asked.partition(), failing, "as the script says"));
        }
        CoordinatorResult<WriteShareGroupStateResponseData, CoordinatorRecord> result =
            coordinator.shard().writeState(new WriteShareGroupStateRequestData()
                .setGroupId(parameters.groupTopicPartitionData().groupId())
                .setTopics(List.of(new WriteShareGroupStateRequestData.WriteStateData().setTopicId(topic.topicId())
                    .setPartitions(List.of(new WriteShareGroupStateRequestData.PartitionData()
                        .setPartition(asked.partition()).setStateEpoch(asked.stateEpoch())
                        .setLeaderEpoch(asked.leaderEpoch()).setStartOffset(asked.startOffset())
                        .setDeliveryCompleteCount(asked.deliveryCompleteCount())
                        .setStateBatches(asked.stateBatches().stream().map(batch ->
                            new WriteShareGroupStateRequestData.StateBatch()
                                .setFirstOffset(batch.firstOffset()).setLastOffset(batch.lastOffset())
                                .setDeliveryState(batch.deliveryState()).setDeliveryCount(batch.deliveryCount())).toList()))))));
        coordinator.write(result, records);
        return WriteShareGroupStateResult.from(result.response());
    }
}
