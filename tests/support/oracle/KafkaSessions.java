package kafka.server.share;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;

import kafka.server.KafkaApis;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ShareAcknowledgeRequestData;
import org.apache.kafka.common.message.ShareAcknowledgeRequestDataJsonConverter;
import org.apache.kafka.common.message.ShareFetchRequestData;
import org.apache.kafka.common.message.ShareFetchRequestDataJsonConverter;
import org.apache.kafka.common.message.ShareFetchResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.ShareFetchRequest;
import org.apache.kafka.server.share.ErroneousAndValidPartitionData;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.context.ShareFetchContext;
import org.apache.kafka.server.share.fetch.PartitionRotateStrategy;
import org.apache.kafka.server.share.session.ShareSessionCache;

/**
 * Asks Kafka's own share sessions, and its check of acknowledgements, with steps from standard input (one JSON object a
 * line; one with a limit begins a new life), and prints for each what they answered.
 */
public final class KafkaSessions {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final ShareSessionCache cache;
    private final SharePartitionManager manager;
    private final KafkaApis apis;
    private final Map<Uuid, String> names = new HashMap<>();

    private KafkaSessions(JsonNode settings) throws Exception {
        cache = new ShareSessionCache(settings.get("limit").asInt());
        manager = new SharePartitionManager(
            null, null, null, key -> { }, null, cache, new SharePartitionCache(), 1, null, 5, 200, 1L,
            null, null, null, null, () -> false, null);
        settings.get("names").fields().forEachRemaining(found ->
            names.put(Uuid.fromString(found.getKey()), found.getValue().asText()));
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        // The check of acknowledgements uses nothing of the broker that it is a method of.
        apis = (KafkaApis) ((sun.misc.Unsafe) field.get(null)).allocateInstance(KafkaApis.class);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        KafkaSessions found = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode node = JSON.readTree(line);
            if (node.has("limit")) {
                found = new KafkaSessions(node);
            } else {
                out.println(JSON.writeValueAsString(found.step(node)));
            }
        }
        out.flush();
    }

    private ObjectNode step(JsonNode line) {
        ObjectNode answer = JSON.createObjectNode();
        short version = (short) line.path("version").asInt(2);
        switch (line.get("op").asText()) {
            case "fetch" -> fetch(line, version, answer);
            case "acknowledge" -> {
                ShareAcknowledgeRequestData data = ShareAcknowledgeRequestDataJsonConverter.read(line.get("request"), version);
                answer.set("request", ShareAcknowledgeRequestDataJsonConverter.write(data, version));
                answer.put("error", error(() ->
                    manager.acknowledgeSessionUpdate(data.groupId(), data.memberId(), data.shareSessionEpoch())));
            }
            case "close" -> answer.put("error", error(() ->
                manager.releaseSession(line.get("group").asText(), line.get("member").asText()).join()));
            case "disconnect" -> cache.connectionDisconnectListener().onDisconnect(line.get("connection").asText());
            case "check" -> answer.put("passes", passes(line, version));
            default -> throw new IllegalArgumentException(line.toString());
        }
        answer.put("sessions", cache.size());
        return answer;
    }

    private void fetch(JsonNode line, short version, ObjectNode answer) {
        ShareFetchRequestData data = ShareFetchRequestDataJsonConverter.read(line.get("request"), version);
        answer.set("request", ShareFetchRequestDataJsonConverter.write(data, version));
        ShareFetchRequest request = new ShareFetchRequest(data, version);
        boolean acknowledges = data.topics().stream().anyMatch(topic ->
            topic.partitions().stream().anyMatch(partition -> !partition.acknowledgementBatches().isEmpty()));
        answer.put("error", error(() -> {
            ShareFetchContext context = manager.newContext(
                data.groupId(), request.shareFetchData(names), request.forgottenTopics(names), data.memberId(),
                data.shareSessionEpoch(), acknowledges, line.get("connection").asText());
            ErroneousAndValidPartitionData found = context.getErroneousAndValidTopicIdPartitions();
            ArrayNode valid = answer.putArray("valid");
            found.validTopicIdPartitions().forEach(at -> put(valid, at));
            answer.put("unknown", found.erroneous().size());
            ArrayNode turn = answer.putArray("turn");
            PartitionRotateStrategy.type(PartitionRotateStrategy.StrategyType.ROUND_ROBIN).rotate(
                found.validTopicIdPartitions(), new PartitionRotateStrategy.PartitionRotateMetadata(data.shareSessionEpoch())
            ).forEach(at -> put(turn, at));
            LinkedHashMap<TopicIdPartition, ShareFetchResponseData.PartitionData> updates = new LinkedHashMap<>();
            line.get("found").forEach(part -> updates.put(at(part), update(part)));
            ArrayNode told = answer.putArray("told");
            context.updateAndGenerateResponseData(data.groupId(), data.memberId(), updates).data().responses().forEach(
                topic -> topic.partitions().forEach(partition ->
                    told.addArray().add(topic.topicId().toString()).add(partition.partitionIndex())));
        }));
        ArrayNode cached = answer.putArray("cached");
        manager.cachedTopicIdPartitionsInShareSession(data.groupId(), data.memberId()).forEach(at -> put(cached, at));
    }

    private TopicIdPartition at(JsonNode part) {
        Uuid topicId = Uuid.fromString(part.get(0).asText());
        return new TopicIdPartition(topicId, part.get(1).asInt(), names.get(topicId));
    }

    private static void put(ArrayNode list, TopicIdPartition at) {
        list.addArray().add(at.topicId().toString()).add(at.partition());
    }

    private static ShareFetchResponseData.PartitionData update(JsonNode part) {
        MemoryRecords records = part.get(2).asBoolean()
            ? MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(ByteBuffer.allocate(1).array())) : MemoryRecords.EMPTY;
        return new ShareFetchResponseData.PartitionData().setPartitionIndex(part.get(1).asInt())
            .setErrorCode((short) part.get(3).asInt()).setRecords(records);
    }

    private boolean passes(JsonNode line, short version) {
        List<ShareAcknowledgementBatch> batches = new ArrayList<>();
        for (JsonNode batch : line.get("batches")) {
            List<Byte> types = new ArrayList<>();
            batch.get(2).forEach(type -> types.add((byte) type.asInt()));
            batches.add(new ShareAcknowledgementBatch(batch.get(0).asLong(), batch.get(1).asLong(), types));
        }
        scala.collection.mutable.HashMap<TopicIdPartition, List<ShareAcknowledgementBatch>> said = new scala.collection.mutable.HashMap<>();
        said.put(new TopicIdPartition(Uuid.ONE_UUID, 0, "topic"), batches);
        return apis.validateAcknowledgementBatches(
            said, new scala.collection.mutable.HashMap<>(), version == 2, line.get("renewing").asBoolean()).isEmpty();
    }

    private static String error(Runnable asked) {
        try {
            asked.run();
            return Errors.NONE.name();
        } catch (CompletionException failed) {
            return Errors.forException(failed.getCause()).name();
        } catch (RuntimeException failed) {
            return Errors.forException(failed).name();
        }
    }
}
